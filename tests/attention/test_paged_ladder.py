"""The ladder of paged decode: every rung right, peers only where lengths are equal, and what gathering costs."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from labllm.attention import paged_ladder
from labllm.attention.paged_ladder import PagedDecode, lengths
from labllm.bench import KernelClock, measure
from labllm.hardware import triton_mode

LADDER = dataclasses.replace(paged_ladder.PAGED_DECODE, clock=KernelClock(budget=0, most=1))
CPU_PEERS = {"sdpa[math] contiguous", "sdpa[flash] contiguous"}
TRITON = {"paged", "split", "split, one launch", "split, overlapped", "split, head-major"}
runs_triton = triton_mode("cpu") == "interpreted"


@pytest.mark.parametrize("spread", ["equal", "even", "skewed"])
@pytest.mark.parametrize(("context", "batch", "block_size", "dtype"), [(1, 1, 16, "float32"), (70, 3, 8, "float16")])
def test_every_rung_is_right(context: int, batch: int, block_size: int, dtype: str, spread: str) -> None:
    w = PagedDecode(context, batch, block_size, spread, 4, 2, 64, dtype)
    states = {r.rung: (r.status, r.reason) for r in measure(LADDER, w, device="cpu")}
    right = {"gather"} | (TRITON if runs_triton else set())
    if len(set(lengths(w))) == 1:
        right |= CPU_PEERS
    else:
        assert {states[name] for name in CPU_PEERS} == {
            ("cannot run here", "a dense cache has one length for all sequences: choose equal lengths")
        }
    assert {states[name][0] for name in right} == {"ok"}, states
    assert states["sdpa[cudnn] contiguous"][0] == "cannot run here"


@pytest.mark.parametrize("spread", ["equal", "even", "skewed"])
def test_inputs_hold_each_length_once_and_every_page_is_owned_once(spread: str) -> None:
    w = PagedDecode(100, 9, 8, spread, 4, 2, 64, "float32")
    inputs = LADDER.inputs(w, "cpu", 1)
    assert sorted(inputs.seq_lens.tolist()) == sorted(lengths(w)) and max(lengths(w)) == 100
    needed = -(-inputs.seq_lens[:, None] // 8)
    used = torch.arange(inputs.block_table.shape[1]) < needed
    poison = len(inputs.k_cache) - 1
    assert sorted(inputs.block_table[used].tolist()) == list(range(poison))
    assert (inputs.block_table[~used] == poison).all() and inputs.k_cache[poison].isnan().all()
    assert not torch.equal(inputs.block_table[used], inputs.block_table[used].sort().values)


@pytest.mark.parametrize("spread", ["equal", "even", "skewed"])
def test_the_inputs_take_the_bytes_that_the_formula_says(spread: str) -> None:
    w = PagedDecode(100, 9, 64, spread, 4, 2, 64, "float16")
    assert LADDER.input_bytes(w) == sum(x.nbytes for x in LADDER.inputs(w, "cpu", 0))


def test_gathering_moves_three_times_the_bytes_and_more_where_lengths_differ() -> None:
    moved = LADDER["gather"].moved
    equal, skewed = (PagedDecode(4096, 64, 16, s, 32, 8, 128, "bfloat16") for s in ("equal", "skewed"))
    assert moved(equal).bytes == pytest.approx(3 * LADDER.cost(equal).bytes, rel=0.01)
    assert moved(skewed).bytes > 8 * LADDER.cost(skewed).bytes


def test_the_compulsory_cost_by_hand() -> None:
    w = PagedDecode(4096, 32, 16, "equal", 32, 8, 128, "bfloat16")
    cost = LADDER.cost(w)
    assert cost.bytes == 32 * (4096 * 8 * 2 * 128 * 2 + 2 * 32 * 128 * 2 + 4 * 4096 / 16)
    assert cost.flops == 4 * 32 * 32 * 128 * 4096
