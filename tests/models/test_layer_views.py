"""The table of a layer's rungs shows what was timed and counted, in the ladder's order."""

from __future__ import annotations

import pytest

from labllm.bench import Ladder, Record, Rung
from labllm.bench.record import Host, Metric, Spread, Work
from labllm.models.layer_views import conclusion, rows
from labllm.roofline import Cost


def record(rung: str, seconds: float | None, share: float | None = None, **counts: float) -> Record:
    spread = None if seconds is None else Spread(median=seconds, p10=seconds, p90=seconds, samples=3)
    return Record(
        ladder="toy-layer", rung=rung, workload={"batch": 1}, status="ok", time=spread, of_ceiling=share,
        compulsory=Work(flops=1, bytes=300), moved=Work(flops=1, bytes=400), date="2026-11-30", source="0" * 12,
        metrics={name: Metric(value=value, unit="") for name, value in counts.items()},
        host=Host(name="NVIDIA H200", kind="cuda", versions={}),
    )  # fmt: skip


RUNGS = tuple(Rung(name, print, about=f"about {name}") for name in ("eager", "fused", "cuda graph"))
LADDER = Ladder("toy-layer", "", object, print, lambda w: Cost(), print, RUNGS)
RECORDS = [
    record("cuda graph", 100e-6, 0.8, launches=1, kernels=6),
    record("eager", 400e-6, 0.2, launches=30, kernels=30),
    record("fused", None),
]


def test_rungs_stand_in_order_with_counts_and_floors():
    eager, graph = rows(LADDER, RECORDS)
    assert (eager["rung"], graph["rung"]) == ("eager", "cuda graph") and eager["what it does"] == "about eager"
    assert (eager["launches"], graph["launches"], graph["kernels"]) == (30, 1, 6)
    assert eager["time (µs)"] == pytest.approx(400) and graph["times its floor"] == pytest.approx(1.25)


def test_what_was_not_counted_stays_empty():
    (row,) = rows(LADDER, [record("eager", 1e-3)])
    assert set(row) == {"rung", "what it does", "time (µs)"}
    first, second = rows(LADDER, [record("eager", 1e-3), record("fused", 1e-3, operators=7)])
    assert first["operators"] is None and second["operators"] == 7
    assert rows(LADDER, []) == []


def test_the_sentence_goes_from_first_to_last():
    text = conclusion(RECORDS)
    assert text == (
        "From eager to cuda graph: 400 µs to 100 µs, 4x as fast; 30 launches to 1; 30 kernels to 6. "
        "Without a graph a launch took 13.3 µs, all in all."
    )
    assert conclusion(RECORDS[:1]) == "" and conclusion([]) == ""
