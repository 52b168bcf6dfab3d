"""The verdicts of lab 10 follow the records: other records, another verdict."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from labllm.bench import Record
from labllm.bench.record import Host, Spread, Work
from labllm.claims import get
from labllm.serving.gains import gains, swept
from labllm.serving.ladder import Traffic
from labllm.serving.simulated_ladder import Fleet

RATIOS = (1, 2, 4, 8, 16, 32)


def record(ladder: str, rung: str, workload: object, seconds: float) -> Record:
    nothing = Work(flops=0, bytes=0)
    return Record(
        ladder=ladder, rung=rung, workload=dataclasses.asdict(workload), status="ok", source="", compulsory=nothing,
        time=Spread(median=seconds, p10=seconds, p90=seconds, samples=1), moved=nothing, date="2026-01-02",
        host=Host(name="NVIDIA H200", kind="cuda", versions={}),
    )  # fmt: skip


def sweep(gain: Callable[[int], float], ratios: tuple[int, ...] = RATIOS, ladder: str = "batching") -> list[Record]:
    made = Traffic if ladder == "batching" else Fleet
    found = []
    for ratio in ratios:
        found += [
            record(ladder, "static", made(ratio=ratio), gain(ratio)),
            record(ladder, "continuous", made(ratio=ratio), 1.0),
        ]
    return found


def test_gains_stand_beside_the_bound_of_their_own_lengths() -> None:
    found = gains(sweep(lambda ratio: 1 + ratio / 10))
    assert [g.ratio for g in found] == list(RATIOS)
    assert [g.gain for g in found] == pytest.approx([1 + ratio / 10 for ratio in RATIOS])
    assert found[0].bound == pytest.approx(1) and [g.bound for g in found] == sorted(g.bound for g in found)
    alone = [r for r in sweep(lambda ratio: 2.0) if r.rung == "static"]
    assert gains(alone) == [] and found[0].row["gain (x)"] == pytest.approx(1.1)


def test_of_machines_the_one_with_most_ratios_is_taken_and_of_equal_ones_the_gpu() -> None:
    def on_cpu(records: list[Record]) -> list[Record]:
        return [r.model_copy(update={"host": Host(name="CPU", kind="cpu", versions={})}) for r in records]

    few, all_of_them = sweep(lambda ratio: 2.0, (1, 2)), sweep(lambda ratio: 2.0)
    assert {r.host.name for r in swept([*on_cpu(all_of_them), *all_of_them])} == {"NVIDIA H200"}
    found = swept([*few, *on_cpu(all_of_them)])
    assert {r.host.name for r in found} == {"CPU"}
    assert [(r.workload["ratio"], r.rung) for r in found[:3]] == [(1, "static"), (1, "continuous"), (2, "static")]
    assert swept([]) == []


def test_arrivals_over_time_are_another_question() -> None:
    late = [record("batching", rung, Traffic(arrivals="Poisson"), 1.0) for rung in ("static", "continuous")]
    assert gains(late) == []


def test_v_holds_when_lengths_differ() -> None:
    verdict = get("v").verdict(sweep(lambda ratio: ratio**0.5))
    assert verdict.word == "holds when" and verdict.condition == "the longest answer is at least 2x the shortest"
    assert "16x: 4x of at most" in verdict.sentence and verdict.machine == "NVIDIA H200"


def test_v_can_hold_and_fail() -> None:
    assert get("v").verdict(sweep(lambda ratio: 1.5)).word == "holds"
    assert get("v").verdict(sweep(lambda ratio: 1.02)).word == "does not hold"


def test_v_tells_the_simulation_too() -> None:
    verdict = get("v").verdict(sweep(lambda ratio: 1.5) + sweep(lambda ratio: 1.7, ladder="simulated-batching"))
    assert "Simulated for Llama-3.1-70B on 4 H200: 1x: 1.7x" in verdict.sentence


def test_without_a_measurement_the_simulation_decides_and_says_so() -> None:
    simulated = sweep(lambda ratio: ratio**0.5, ladder="simulated-batching")
    for letter, word in (("v", "holds when"), ("w", "does not hold")):
        verdict = get(letter).verdict(simulated)
        assert verdict.word == word and verdict.machine == "simulated, on any machine"
        assert verdict.sentence.startswith("Llama-3.1-70B on 4 H200, simulated")
    assert get("v").verdict(simulated + sweep(lambda ratio: 1.5)).sentence.startswith("pico, ")


def test_w_asks_where_the_gain_begins() -> None:
    smooth = get("w").verdict(sweep(lambda ratio: ratio**0.5))
    assert smooth.word == "does not hold" and "no step at 8" in smooth.sentence
    assert get("w").verdict(sweep(lambda ratio: 1.02 if ratio <= 8 else 1.8)).word == "holds"
    assert get("w").verdict(sweep(lambda ratio: 1.02)).word == "does not hold"


def test_w_takes_the_simulation_where_what_was_measured_ends_too_early() -> None:
    simulated = sweep(lambda ratio: ratio**0.5, ladder="simulated-batching")
    verdict = get("w").verdict([*sweep(lambda ratio: 2.0, (1, 2, 4)), *simulated])
    assert verdict.word == "does not hold" and verdict.machine == "simulated, on any machine"


def test_without_records_there_is_no_verdict() -> None:
    assert get("v").verdict([]).word == get("w").verdict([]).word == "no record yet"
    assert "up to 8 and beyond" in get("w").verdict(sweep(lambda ratio: 2.0, (1, 2, 4))).sentence
