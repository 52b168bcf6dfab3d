"""A tap changes no answer and keeps what each layer brought."""

from __future__ import annotations

import torch

from labllm.attention.recompute import recompute
from labllm.attention.tap import Tap
from labllm.cache.step import Step


def test_a_tap_hands_on_and_remembers():
    q, k, v = torch.randn(5, 4, 8), torch.randn(5, 2, 8), torch.randn(5, 2, 8)
    tap, step = Tap(recompute), Step.uncached([2, 3])
    assert torch.equal(tap(q, k, v, 3, step), recompute(q, k, v, 3, step))
    assert list(tap.seen) == [3] and tap.seen[3].k is k


def test_a_window_reaches_the_attention_behind():
    q, k, v = torch.randn(6, 2, 8), torch.randn(6, 2, 8), torch.randn(6, 2, 8)
    step = Step.uncached([6])
    assert torch.equal(Tap(recompute)(q, k, v, 0, step, window=2), recompute(q, k, v, 0, step, window=2))
    assert not torch.equal(recompute(q, k, v, 0, step, window=2), recompute(q, k, v, 0, step))
