"""The tiled torch rung equals the plain one whatever its tiles, and holds one tile of scores."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from labllm.attention.naive import naive
from labllm.attention.tiled import tiled, tiled_cost, tiled_memory
from labllm.bench import relative_error
from labllm.bench.memory import peak_bytes
from labllm.bench.poison import Poisoned


@settings(max_examples=30, deadline=None)
@given(
    st.integers(1, 30), st.integers(0, 20), st.integers(1, 40), st.booleans(), st.sampled_from([(1, 1), (4, 2), (3, 3)])
)
def test_tiles_do_not_change_the_answer(
    queries: int, prefix: int, tile: int, causal: bool, heads: tuple[int, int]
) -> None:
    torch.manual_seed(0)
    q = torch.randn(2, queries, heads[0], 8, dtype=torch.float64).transpose(1, 2)
    k, v = torch.randn(2, 2, heads[1], queries + prefix, 8, dtype=torch.float64)
    with Poisoned():
        out = tiled(q, k, v, causal, tile)
    assert relative_error(out, naive(q, k, v, causal)) < 1e-12


def test_large_scores_do_not_overflow() -> None:
    q, k, v = (100 * torch.randn(1, 1, 40, 16) for _ in "qkv")
    assert relative_error(tiled(q, k, v, tile=8), naive(q.double(), k.double(), v.double())) < 1e-5


@pytest.mark.parametrize("length", [600, 1500])
def test_the_memory_formula_bounds_what_is_allocated(length: int) -> None:
    q, k, v = (torch.randn(1, 2, length, 64) for _ in "qkv")
    _, peak = peak_bytes(lambda: tiled(q, k, v), "cpu")
    assert 0.3 * tiled_memory(1, 2, 64, length, 4) < peak <= 1.1 * tiled_memory(1, 2, 64, length, 4)


def test_a_causal_mask_skips_half_the_work() -> None:
    causal, full = (tiled_cost(1, 16384, 16384, 32, 8, 128, 2, mask) for mask in (True, False))
    assert 0.5 < causal.flops / full.flops < 0.55


def test_misfits_are_refused() -> None:
    with pytest.raises(ValueError, match="at least as many keys"):
        tiled(torch.zeros(1, 1, 3, 8), torch.zeros(1, 1, 2, 8), torch.zeros(1, 1, 2, 8))
