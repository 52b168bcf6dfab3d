"""The verdicts of lab 06 follow the records."""

from __future__ import annotations

import dataclasses

from labllm.bench import Record
from labllm.bench.record import Host, Spread, Work
from labllm.claims import get
from labllm.ladders import ladder


def timed(name: str, rung: str, seconds: float, of_roof: float | None = None, **fields) -> Record:
    w = ladder(name).workload(**fields)
    cost = ladder(name).cost(w)
    work = Work(flops=cost.flops, bytes=cost.bytes)
    return Record(
        ladder=name, rung=rung, workload=dataclasses.asdict(w), status="ok", source="", date="2026-01-02",
        time=Spread(median=seconds, p10=seconds, p90=seconds, samples=1), compulsory=work, moved=work,
        of_datasheet=of_roof, host=Host(name="NVIDIA H200", kind="cuda", versions={}),
    )  # fmt: skip


def climb(**seconds: float) -> list[Record]:
    names = {
        "naive": "naive",
        "wmma": "WMMA",
        "buffered": "double-buffered",
        "hopper": "Hopper",
        "library": "torch.matmul",
    }
    return [timed("gemm-by-hand", names[n], s, n=4096, dtype="bfloat16") for n, s in seconds.items()]


def test_older_instructions_hold_until_newer_ones_take_their_place() -> None:
    verdict = get("g").verdict(climb(naive=30, wmma=1, buffered=0.5, hopper=0.25, library=0.2))
    assert verdict.text.startswith("holds when the GPU is older than Hopper")
    assert "WMMA is 30x as fast as the naive loop, double buffering 2x" in verdict.sentence
    assert "(40% of cuBLAS)" in verdict.sentence and "2x as fast again (80% of cuBLAS)" in verdict.sentence
    older = get("g").verdict(climb(naive=30, wmma=1, buffered=0.5, library=0.4))
    assert older.word == "holds" and "WGMMA" not in older.sentence


def test_a_step_that_gains_nothing_refutes() -> None:
    assert get("g").verdict(climb(naive=30, wmma=1, buffered=1.1, library=0.4)).word == "does not hold"
    assert "gemm-by-hand" in get("g").verdict(climb(naive=30, wmma=1)).sentence


def layer(batch: int, **parts: tuple[float, float]) -> list[Record]:
    """part=(seconds, share of its roof)."""
    fields = {"model": "Llama-3.1-8B", "dtype": "bfloat16", "batch": batch, "queries": 1, "context": 2048}
    return [timed("layer-parts", "torch", s, of, part=p, **fields) for p, (s, of) in parts.items()]


def test_a_large_share_at_its_roof_gains_less_than_a_small_one_far_from_it() -> None:
    verdict = get("D").verdict(layer(1, attention=(9, 0.95), qkv=(1, 0.9)) + layer(2, attention=(5, 0.4), qkv=(5, 0.9)))
    assert verdict.word == "does not hold"
    assert "attention takes 90% of a layer" in verdict.sentence and "1.43x as fast" in verdict.sentence


def test_the_rule_holds_where_the_share_sorts_the_gains() -> None:
    assert get("D").verdict(layer(1, attention=(9, 0.5), qkv=(1, 0.9))).word == "holds"
    assert "layer-parts" in get("D").verdict(layer(1, attention=(5, 0.5), qkv=(5, 0.9))).sentence
