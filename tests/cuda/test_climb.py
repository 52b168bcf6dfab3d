"""The climb: kernels stand at what they ask for, and its sentence claims no limit that their place does not show."""

from __future__ import annotations

import dataclasses

import pytest

from labllm.bench import Record, Roof
from labllm.bench.record import Host, Spread, Work
from labllm.cuda.climb import LIBRARY, climb, conclusion
from labllm.cuda.ladder import GEMM_BY_HAND

ROOF = Roof("NVIDIA H200", "recorded", 4e12, {"bfloat16": 8e14})


def timed(rung: str, seconds: float, n: int = 4096) -> Record:
    w = GEMM_BY_HAND.workload(n, "bfloat16")
    (found,) = [r for r in GEMM_BY_HAND.rungs if r.name == rung]
    cost, moved = GEMM_BY_HAND.cost(w), (found.moved or GEMM_BY_HAND.cost)(w)
    return Record(
        ladder="gemm-by-hand", rung=rung, workload=dataclasses.asdict(w), status="ok", source="", date="2026-01-02",
        time=Spread(median=seconds, p10=seconds, p90=seconds, samples=1),
        compulsory=Work(flops=cost.flops, bytes=cost.bytes), moved=Work(flops=moved.flops, bytes=moved.bytes),
        host=Host(name="NVIDIA H200", kind="cuda", versions={}),
    )  # fmt: skip


RECORDS = [timed("naive", 40e-3), timed("registers", 4e-3), timed("Hopper", 0.2e-3), timed(LIBRARY, 0.18e-3)]


def test_the_sentence_gives_gain_bytes_and_share() -> None:
    text = conclusion(RECORDS, ROOF)
    assert "side 4k in bfloat16 on H200: Hopper is 200x as fast as naive" in text
    assert "asks for 1.64 GB in place of 142 GB" in text and "90 % of torch.matmul's speed" in text


def test_only_points_above_the_slope_were_served_by_caches() -> None:
    assert "they stand above the slope: Hopper." in conclusion(RECORDS, ROOF)
    slow = [timed("naive", 40e-3), timed("registers", 4e-3)]
    assert "aches" not in conclusion(slow, ROOF) and "torch" not in conclusion(slow, ROOF)


def test_every_rung_is_named_and_none_refused() -> None:
    assert climb(RECORDS, ROOF).sentence == conclusion(RECORDS, ROOF)
    with pytest.raises(ValueError, match="at least one timed record"):
        climb([], ROOF)
