"""Gains are computed from records: times, promises, and where the compiler is as good."""

from __future__ import annotations

import pytest

from labllm.bench.record import Host, Record, Spread, Work
from labllm.fusion.gains import conclusion, gain, vertical


def record(rung: str, seconds: float | None, moved: float, rows: int = 64) -> Record:
    spread = None if seconds is None else Spread(median=seconds, p10=seconds, p90=seconds, samples=3)
    return Record(
        ladder="chain", rung=rung, workload={"rows": rows, "dtype": "bfloat16"}, status="ok", time=spread,
        compulsory=Work(flops=1, bytes=300), moved=Work(flops=1, bytes=moved), date="2026-11-30", source="0" * 12,
        host=Host(name="NVIDIA H200", kind="cuda", versions={}),
    )  # fmt: skip


RECORDS = [record("eager", 8e-6, 700), record("torch.compile", 3e-6, 300), record("triton", 2e-6, 300)]


def test_a_gain_stands_beside_its_promise():
    found = gain("norm", "chain", records=RECORDS, rows=64)
    assert found.gained == pytest.approx(4) and found.promised == pytest.approx(7 / 3)
    assert found.behind == pytest.approx(1.5)
    assert found.row["work"] == "norm" and found.row["gained (times)"] == pytest.approx(4)
    assert found.row["torch.compile (µs)"] == pytest.approx(3)


def test_what_was_not_recorded_is_missing():
    assert gain("norm", "chain", records=RECORDS, rows=65) is None
    assert gain("norm", "chain", records=RECORDS, host="Test CPU") is None
    assert gain("norm", "other", records=RECORDS) is None
    untimed = gain("norm", "chain", records=[*RECORDS[::2], record("torch.compile", None, 300)])
    assert untimed.behind is None and untimed.row["torch.compile (µs)"] is None


def test_the_sentence_says_where_the_compiler_is_as_good():
    slow = gain("slow", "chain", records=RECORDS)
    equal = gain("equal", "chain", records=[record("eager", 3e-6, 600), *RECORDS[2:], record("torch.compile", 2e-6, 3)])
    assert conclusion([slow, equal]) == (
        "Fusing gains most for slow, 4x, and least for equal, 1.50x. "
        "The compiler is behind for slow (1.50x as long), and as good elsewhere, within 10%."
    )
    assert conclusion([equal]) == "Fusing gains most for equal, 1.50x. The compiler is as good everywhere, within 10%."
    assert conclusion([slow]).endswith("The compiler is behind for slow (1.50x as long).")
    assert conclusion([gain("alone", "chain", records=RECORDS[::2])]) == "Fusing gains most for alone, 4x."


def test_vertical_chains_are_those_that_are_recorded():
    workload = {"rows": 64, "hidden": 8, "dtype": "bfloat16", "activation": "silu"}
    mine = [r.model_copy(update={"ladder": "swiglu", "workload": workload}) for r in RECORDS]
    assert [g.name for g in vertical(64, 8, mine)] == ["SiLU, product"]
    assert vertical(65, 8, mine) == []
