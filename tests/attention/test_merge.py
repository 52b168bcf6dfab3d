"""Partial answers merge into the whole one, whatever the parts are and in whatever order."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from labllm.attention.dense import reference
from labllm.attention.merge import Partial, attend_part, merge

H, D = 3, 16


def drawn(keys: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(1, H, n, D, generator=generator, dtype=torch.float64) for n in (2, keys, keys))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 9), min_size=1, max_size=5), st.integers(0, 3), st.randoms(use_true_random=False))
def test_any_cut_in_any_order_gives_the_whole(sizes: list[int], seed: int, random) -> None:
    sizes = [*sizes, 1]
    q, k, v = drawn(sum(sizes), seed)
    parts = [attend_part(q, *kv) for kv in zip(k.split(sizes, 2), v.split(sizes, 2), strict=True)]
    random.shuffle(parts)
    whole = parts[0]
    for part in parts[1:]:
        whole = merge(whole, part)
    expected = reference(q, k, v, None, causal=False).view_as(whole.out)
    assert torch.allclose(whole.out, expected, atol=1e-12)
    assert torch.allclose(whole.lse, (q @ k.transpose(-1, -2) / D**0.5).logsumexp(-1), atol=1e-12)


def test_a_part_without_keys_weighs_nothing_whatever_it_holds() -> None:
    q, k, v = drawn(5)
    part = attend_part(q, k, v)
    empty = attend_part(q, k[:, :, :0], v[:, :, :0])
    assert torch.equal(empty.out, torch.zeros_like(empty.out)) and bool((empty.lse == float("-inf")).all())
    poisoned = Partial(torch.full_like(empty.out, float("nan")), empty.lse)
    for merged in (merge(part, poisoned), merge(poisoned, part)):
        assert torch.equal(merged.out, part.out) and torch.equal(merged.lse, part.lse)
    nothing = merge(empty, empty)
    assert torch.equal(nothing.out, empty.out) and torch.equal(nothing.lse, empty.lse)


def test_large_scores_do_not_overflow() -> None:
    q, k, v = drawn(8)
    a, b = (attend_part(1000 * q, *kv) for kv in zip(k.split(4, 2), v.split(4, 2), strict=True))
    merged = merge(a, b)
    assert bool(merged.out.isfinite().all()) and bool(merged.lse.isfinite().all())


def test_shapes_must_fit() -> None:
    part = Partial(torch.zeros(2, 3), torch.zeros(2))
    with pytest.raises(ValueError, match="two parts need"):
        merge(part, Partial(torch.zeros(2, 4), torch.zeros(2)))
    with pytest.raises(ValueError, match="two parts need"):
        merge(part, Partial(torch.zeros(2, 3), torch.zeros(2, 1)))
