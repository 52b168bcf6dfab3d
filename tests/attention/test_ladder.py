"""Every attention rung on the shape contract: one token, odd lengths, Tq < Tk, grouped heads, head dims, dtypes."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from labllm.attention import dense, ladder
from labllm.attention.grouped import grouped
from labllm.attention.ladder import Decode, Prefill
from labllm.attention.naive import naive, naive_memory
from labllm.bench import TOLERANCE, KernelClock, measure, relative_error
from labllm.hardware import interpreting

QUICK = KernelClock(budget=0, most=1)
DECODE, PREFILL = (dataclasses.replace(one, clock=QUICK) for one in (ladder.DECODE, ladder.PREFILL))
SHAPES = [(1, 1, 1, 64), (2, 4, 2, 64), (3, 8, 1, 128), (1, 6, 6, 80)]


@pytest.mark.parametrize("heads", SHAPES, ids=str)
@pytest.mark.parametrize("context", [1, 2, 127, 130])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_decode_rungs_are_right(heads, context, dtype) -> None:
    batch, q_heads, kv_heads, dim = heads
    states = {
        r.rung: r.status for r in measure(DECODE, Decode(context, batch, q_heads, kv_heads, dim, dtype), device="cpu")
    }
    ours = {r.name for r in DECODE.rungs if not r.peer}
    assert {states[name] for name in ours | {"sdpa[math]", "sdpa[flash]"}} == {"ok"}, states


@pytest.mark.parametrize("heads", SHAPES[1:], ids=str)
@pytest.mark.parametrize(("length", "prefix"), [(1, 0), (1, 129), (65, 0), (33, 70)])
@pytest.mark.parametrize("mask", ["causal", "full"])
def test_prefill_rungs_are_right(heads, length, prefix, mask) -> None:
    batch, q_heads, kv_heads, dim = heads
    workload = Prefill(length, prefix, batch, q_heads, kv_heads, dim, mask, "float32")
    ladder = PREFILL.only("naive", "tiled", "sdpa[math]", "sdpa[flash]")  # kernels have test_flash.py
    states = {r.rung: (r.status, r.reason) for r in measure(ladder, workload, device="cpu")}
    assert {status for status, _ in states.values()} == {"ok"}, states


@pytest.mark.skipif(not interpreting(), reason="where Triton compiles its rungs are timed, and elsewhere it is absent")
def test_kernels_join_the_prefill_ladder_checked_but_untimed() -> None:
    workload = Prefill(33, 7, 1, 2, 1, 64, "causal", "float16")
    kernels = PREFILL.only("flash", "flash, TMA", "flash, specialised warps")
    by_name = {r.rung: r for r in measure(kernels, workload, device="cpu")}
    assert {by_name[n].status for n in ("flash", "flash, TMA")} == {"ok"}
    assert by_name["flash"].time is None and by_name["flash"].error < TOLERANCE["float16"]
    assert by_name["flash, specialised warps"].status == "cannot run here"


@settings(max_examples=25, deadline=None)
@given(
    st.integers(1, 2), st.sampled_from([(1, 1), (4, 2), (4, 4)]), st.integers(1, 20), st.integers(0, 20), st.booleans()
)
def test_the_reference_equals_the_formula_row_by_row(batch, heads, queries, prefix, causal) -> None:
    q_heads, kv_heads = heads
    torch.manual_seed(0)
    q = torch.randn(batch, q_heads, queries, 8)
    k, v = torch.randn(2, batch, kv_heads, queries + prefix, 8)
    expected = torch.empty(batch, q_heads, queries, 8, dtype=torch.float64)
    for b in range(batch):
        for h in range(q_heads):
            for i in range(queries):
                seen = prefix + i + 1 if causal else queries + prefix
                keys, values = (
                    k[b, h * kv_heads // q_heads, :seen].double(),
                    v[b, h * kv_heads // q_heads, :seen].double(),
                )
                expected[b, h, i] = ((keys @ q[b, h, i].double()) / 8**0.5).softmax(0) @ values
    assert relative_error(dense.reference(q, k, v, None, causal), expected.view(-1, 8)) < 1e-12
    assert relative_error(naive(q, k, v, causal), expected) < TOLERANCE["float32"]
    some = torch.tensor([0, batch * q_heads * queries - 1])
    assert relative_error(dense.reference(q, k, v, some, causal), expected.view(-1, 8)[some]) < 1e-12


@pytest.mark.parametrize(
    ("q", "k", "complaint"),
    [
        ((1, 4, 2, 8), (1, 3, 2, 8), "multiple of KV heads, got 4 and 3"),
        ((1, 4, 3, 8), (1, 4, 2, 8), "at least as many keys"),
        ((2, 4, 1, 8), (1, 4, 2, 8), "share batch and head_dim"),
        ((4, 1, 8), (1, 4, 2, 8), "q must be"),
    ],
)
def test_wrong_shapes_are_refused_in_a_sentence(q, k, complaint) -> None:
    for attend in (naive, grouped):
        with pytest.raises(ValueError, match=complaint):
            attend(torch.zeros(q), torch.zeros(k), torch.zeros(k))


def test_mixed_dtypes_are_refused() -> None:
    q = torch.zeros(1, 2, 1, 8)
    with pytest.raises(ValueError, match="share dtype and device"):
        naive(q, q.half(), q.half())


def test_grouped_takes_one_query() -> None:
    x = torch.zeros(1, 2, 3, 8)
    with pytest.raises(ValueError, match="one query a sequence, got 3"):
        grouped(x, x, x)


def test_a_size_beyond_memory_is_refused_before_it_runs() -> None:
    first = next(
        iter(
            measure(DECODE.only("recompute"), Decode(32768, 64, 32, 8, 128, "float32"), device="cpu", memory_limit=4e9)
        )
    )
    assert first.status == "out of memory"


@pytest.mark.parametrize("context", [64, 300])
def test_the_memory_formula_bounds_what_is_allocated(context: int) -> None:
    w = Decode(context, 2, 4, 2, 64, "float32")
    (record,) = measure(DECODE.only("recompute"), w, device="cpu")
    held = naive_memory(2, context, context, 4, 64, 4)
    assert 0.5 * held < record.peak_bytes <= 1.1 * held


def test_the_cached_rung_moves_the_fewest_bytes() -> None:
    w = Decode(1024, 1, 32, 8, 128, "float16")
    moved = {r.name: (r.moved(w) if r.moved else DECODE.cost(w)).bytes for r in DECODE.rungs[:3]}
    assert moved["recompute"] > 10 * moved["cached, repeated"] > 80 * moved["cached"]
