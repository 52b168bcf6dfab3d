"""The recorded roof of a machine is the best that its records reached at sizes that no cache holds."""

from __future__ import annotations

from pathlib import Path

import pytest

from labllm.bench import recorded, save
from labllm.bench.record import Host, Record, Spread, Work
from labllm.bench.recorded import recorded_roof, shipped


def record(ladder: str, rate: float, host: str = "box", **workload: object) -> Record:
    """A record that did 1e9 bytes or FLOPs at `rate`."""
    seconds = 1e9 / rate
    work = Work(flops=1e9 if ladder == "gemm" else 0, bytes=1e9)
    return Record(
        ladder=ladder, rung="torch", workload=workload, status="ok", compulsory=work, moved=work, date="2026-01-01",
        time=Spread(median=seconds, p10=seconds, p90=seconds, samples=1), source="",
        host=Host(name=host, kind="cuda", versions={}),
    )  # fmt: skip


STREAMS = [
    record("bandwidth", 9e12, mebibytes=1, pattern="read"),  # from a cache: not the roof
    record("bandwidth", 3e12, mebibytes=4096, pattern="copy"),
    record("bandwidth", 4e12, mebibytes=4096, pattern="read"),
    record("bandwidth", 3.5e12, mebibytes=4096, pattern="read"),
]
GEMMS = [
    record("gemm", r, n=n, dtype=t)
    for r, n, t in ((6e14, 4096, "float16"), (7e14, 8192, "float16"), (5e13, 8192, "float32"))
]


def test_the_best_of_each_makes_the_roof() -> None:
    roof = recorded_roof("box", [*STREAMS, *GEMMS, record("gemm", 9e15, "other", n=8192, dtype="float16")])
    assert roof is not None and roof.source == "recorded" and roof.bandwidth == 4e12
    assert roof.parts == {"copy": 3e12, "read": 4e12}
    assert roof.flops == pytest.approx({"float16": 7e14, "float32": 5e13})


def test_half_a_roof_is_none() -> None:
    assert recorded_roof("box", STREAMS) is None and recorded_roof("box", GEMMS) is None
    assert recorded_roof("elsewhere", [*STREAMS, *GEMMS]) is None


def test_workloads_are_asked_for_by_value_or_by_several(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorded, "SHIPPED", tmp_path)
    save([*STREAMS, *GEMMS], tmp_path)
    assert {r.workload["n"] for r in shipped("gemm", n=8192)} == {8192}
    assert len(shipped("gemm", "box", n=(4096, 8192), dtype="float16")) == 2
    assert shipped("gemm", dtype="int4") == [] == shipped("gemm", batch=1)


def test_shipped_records_are_of_the_machine_that_was_asked_for() -> None:
    assert {r.host.name for r in shipped()} >= {r.host.name for r in shipped(host="NVIDIA H200")}
    assert shipped(host="no such machine") == []
