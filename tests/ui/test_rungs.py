"""The drawing of a ladder: rungs from the foot up, what each removes, and the fastest peer on top."""

from __future__ import annotations

import dataclasses

import pytest

from labllm.bench import Ladder, Rung
from labllm.bench.record import Host, Record, Spread, Work
from labllm.ui import rungs
from labllm.ui.style import png

LADDER = Ladder(
    "toy", "A toy", object, inputs=lambda *_: None, cost=lambda _: None, reference=lambda *_: None,  # type: ignore
    rungs=(
        Rung("slow", print, about="does everything twice"), Rung("quick", print, about="does it once"),
        Rung("peer[a]", print, peer=True), Rung("peer[b]", print, peer=True),
    ),
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Size:
    size: int = 4


LADDER = dataclasses.replace(LADDER, workload=Size)


def record(rung: str, seconds: float, size: int = 4) -> Record:
    work, spread = Work(flops=1, bytes=1), Spread(median=seconds, p10=seconds, p90=seconds, samples=1)
    host = Host(name="NVIDIA H200", kind="cuda", versions={})
    return Record(
        ladder="toy", rung=rung, workload={"size": size}, status="ok", time=spread, compulsory=work, moved=work,
        host=host, date="2026-11-29", source="",
    )  # fmt: skip


RECORDS = [record("slow", 8e-3), record("quick", 1e-3), record("peer[a]", 4e-3), record("peer[b]", 2e-3)]


def words(figure) -> list[str]:
    return [text.get_text() for text in figure.axes[0].texts]


def test_it_names_every_rung_what_it_removes_and_its_gain():
    said = words(rungs.chart(LADDER, RECORDS))
    assert [w for w in said if w in ("slow", "quick", "peer[a]", "peer[b]")] == ["slow", "quick", "peer[b]"]
    assert "does everything twice" in said and "8 ms" in said and "1 ms\n8x as fast" in said


def test_the_sentence_says_the_climb_and_its_best():
    said = rungs.conclusion(LADDER, RECORDS)
    assert "slow (does everything twice); quick (does it once); peer[b]" in said
    assert "On H200 slow takes 8 ms and quick, the fastest, 1 ms: 8x as fast." in said


def test_without_records_there_is_a_ladder_and_no_time():
    assert "does it once" in words(rungs.chart(LADDER)) and "as fast" not in rungs.conclusion(LADDER)
    assert png(rungs.chart(LADDER)) == png(rungs.chart(LADDER))


def test_mixed_workloads_are_refused():
    with pytest.raises(ValueError, match="one workload on one machine"):
        rungs.chart(LADDER, [*RECORDS, record("slow", 1.0, size=8)])
