"""The price of a launch is the slope over their number."""

from __future__ import annotations

import pytest

from labllm.bench import measure
from labllm.bench.record import Host, Record, Spread, Work
from labllm.fusion.launches import OVERHEAD, Additions, per_launch


def record(rung: str, launches: int, seconds: float | None) -> Record:
    spread = None if seconds is None else Spread(median=seconds, p10=seconds, p90=seconds, samples=3)
    return Record(
        ladder="launch-overhead", rung=rung, workload={"launches": launches, "elements": 1}, status="ok", time=spread,
        compulsory=Work(flops=1, bytes=8), moved=Work(flops=1, bytes=8), date="2026-11-30", source="0" * 12,
        host=Host(name="Test CPU", kind="cpu", versions={}),
    )  # fmt: skip


@pytest.mark.parametrize("workload", [Additions(1, 1), Additions(7, 1024)])
def test_rungs_add_alike(workload: Additions):
    for r in measure(OVERHEAD.only("one by one", "one launch"), workload, device="cpu"):
        assert r.status == "ok" and r.error <= r.tolerance
        assert r.moved.bytes == (8.0 * workload.elements * (workload.launches if r.rung == "one by one" else 1))


def test_the_price_is_the_slope():
    records = [record("one by one", 1, 10e-6), record("one by one", 101, 210e-6), record("one launch", 101, 9e-6)]
    assert per_launch(records, "one by one") == pytest.approx(2e-6)
    assert per_launch(records, "one launch") is None
    assert per_launch([record("one by one", 1, None), *records[:1]], "one by one") is None


@pytest.mark.gpu
def test_a_replayed_graph_adds_as_often():
    (r,) = measure(OVERHEAD.only("cuda graph"), Additions(16, 1024), device="cuda")
    assert r.status == "ok" and r.error <= r.tolerance
