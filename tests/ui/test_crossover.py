"""Rungs against a baseline over a field: what loses is said in words, and what cannot be compared is refused."""

from __future__ import annotations

import dataclasses

import pytest

from labllm.bench import Record
from labllm.bench.fingerprint import source_hash
from labllm.bench.record import Host, Spread, Work
from labllm.quantization.int4_ladder import INT4
from labllm.quantization.int4_work import Int4Linear
from labllm.ui import crossover


def timed(rung: str, tokens: int, seconds: float | None, host: str = "NVIDIA H200", outputs: int = 4096) -> Record:
    spread = Spread(median=seconds, p10=seconds, p90=seconds, samples=1) if seconds else None
    return Record(
        ladder=INT4.name, rung=rung, workload=dataclasses.asdict(Int4Linear(tokens, outputs)), date="2026-01-02",
        status="ok" if seconds else "cannot run here", reason="" if seconds else "no", time=spread, source="",
        compulsory=Work(flops=1, bytes=1), moved=Work(flops=1, bytes=1), host=Host(name=host, kind="cuda", versions={}),
    )  # fmt: skip


RECORDS = [
    timed("linear", 1, 4e-6), timed("linear", 64, 4e-6), timed("fused", 1, 1e-6), timed("fused", 64, 8e-6),
    timed("gemv", 1, 2e-6), timed("gemv", 64, None), timed("FP8", 1, None),
]  # fmt: skip


def test_the_fastest_of_each_column_and_who_loses_where() -> None:
    sentence = crossover.conclusion(INT4, RECORDS, "linear", "tokens")
    assert sentence == (
        "On H200 fused is the fastest at batch 1 (4x); linear is the fastest at batch 64 (1x). "
        "Slower than linear: fused from 64 on."
    )
    standing = crossover.Standing.of(INT4, RECORDS, "linear", "tokens", None)
    assert standing.rungs == ("linear", "gemv", "fused"), "a rung without any time has no row"


def test_a_rung_that_recovers_is_slower_only_where_it_was() -> None:
    ratios = {1: 2.0, 4: 0.9, 16: 0.97, 64: 1.2}
    records = [timed("linear", m, 1e-6) for m in ratios] + [timed("W8A8", m, 1e-6 / r) for m, r in ratios.items()]
    records += [timed("fused", m, 2e-6) for m in ratios] + [timed("FP8", 1, 2e-6), timed("FP8", 4, 1e-6)]
    sentence = crossover.conclusion(INT4, records, "linear", "tokens")
    assert sentence.endswith("Slower than linear: fused always; W8A8 at 4 and 16; FP8 at 1.")
    (ax,) = crossover.chart(INT4, records, "linear", "tokens").axes
    hatched = {(int(p.get_x() + 0.5), int(p.get_y() + 0.5)) for p in ax.patches if p.get_hatch()}
    said = {(round(t.get_position()[0]), round(t.get_position()[1])) for t in ax.texts if t.get_text().startswith("0.")}
    assert hatched == said, "a hatched cell is written below 1"


def test_the_picture_has_a_row_a_rung_and_a_column_a_value() -> None:
    (ax,) = crossover.chart(INT4, RECORDS, "linear", "tokens").axes
    assert [t.get_text() for t in ax.get_yticklabels()] == ["fused", "gemv", "linear"]
    assert [t.get_text() for t in ax.get_xticklabels()] == ["1", "64"]
    texts = [t.get_text() for t in ax.texts]
    assert "0.50x" in texts and "4x" in texts and "-" in texts
    caption = " ".join(t.get_text() for t in ax.figure.texts)
    assert "-: does not take these" in caption and "older code: linear, gemv, fused" in " ".join(caption.split())


def test_records_of_todays_code_are_not_called_older() -> None:
    now = [r.model_copy(update={"source": source_hash(INT4[r.rung].code)}) for r in RECORDS]
    assert not crossover.Standing.of(INT4, now, "linear", "tokens", None).older
    assert crossover.Standing.of(INT4, [*now, timed("W8A8", 1, 2e-6)], "linear", "tokens", None).older.endswith(
        ": W8A8"
    )


def test_what_cannot_be_compared_is_refused() -> None:
    with pytest.raises(ValueError, match="mix machines, or settings besides tokens"):
        crossover.chart(INT4, [*RECORDS, timed("fused", 4, 1e-6, outputs=512)], "linear", "tokens")
    with pytest.raises(ValueError, match="no timed record of 'W8A8'"):
        crossover.chart(INT4, RECORDS, "W8A8", "tokens")
    with pytest.raises(ValueError):
        crossover.chart(INT4, RECORDS, "linear", "height")
