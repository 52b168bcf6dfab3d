"""A step's time is the sum of its parts, each as often as the model runs it, and only complete steps stand."""

from __future__ import annotations

import dataclasses

import pytest

from labllm.bench import KernelClock, Record, measure
from labllm.bench.record import Host, Spread, Work
from labllm.models.breakdown import bend, groups_over, step_times, without
from labllm.models.cost import PARTS_OF_A_MODEL
from labllm.models.parts import PARTS, LayerPart


def timed(seconds: float, host: str = "box", **workload: object) -> Record:
    """A record of one part that took `seconds`."""
    spread = Spread(median=seconds, p10=seconds, p90=seconds, samples=1)
    return Record(
        ladder="layer-parts", rung="torch", workload=dataclasses.asdict(LayerPart(**workload)), status="ok",
        time=spread,
        compulsory=Work(flops=1, bytes=1), moved=Work(flops=1, bytes=1), host=Host(name=host, kind="cpu", versions={}),
        date="2026-01-01", source="",
    )  # fmt: skip


def whole(context: int, batch: int = 1, attention: float = 1.0) -> list[Record]:
    """All parts of one pico decode step: one second each but for attention."""
    return [
        timed(attention if part == "attention" else 1.0, part=part, context=context, batch=batch)
        for part in PARTS_OF_A_MODEL
    ]


def test_each_part_counts_as_often_as_pico_runs_it() -> None:
    (step,) = step_times(whole(128))
    assert step.seconds == {p: {"head": 1, "norm": 16}.get(p, 8) for p in PARTS_OF_A_MODEL}
    assert step.total == 57 and step.groups == {"GEMMs": 33, "attention": 8, "norms": 16}
    assert step.share("attention") == 8 / 57


def test_a_step_with_a_part_missing_does_not_stand() -> None:
    assert step_times([r for r in whole(128) if r.workload["part"] != "down"]) == []


def test_machines_are_kept_apart() -> None:
    other = [r.model_copy(update={"host": r.host.model_copy(update={"name": "other"})}) for r in whole(128)]
    assert [s.host for s in step_times([*whole(128), *other])] == ["box", "other"]
    assert step_times([*whole(128)[:3], *other[3:]]) == []


def test_the_head_of_a_prefill_counts_for_its_last_token() -> None:
    prefill = [timed(10.0, part=p, context=128, queries=128) for p in PARTS_OF_A_MODEL]
    assert step_times(prefill) == []
    (step,) = step_times([*prefill, timed(0.5, part="head", context=128)])
    assert step.queries == 128 and step.seconds["head"] == 0.5 and step.seconds["down"] == 80


def test_groups_over_a_field_are_in_order() -> None:
    steps = step_times([*whole(2048, attention=5), *whole(128), *whole(512, attention=2)])
    xs, groups = groups_over(steps, "context")
    assert xs == [128, 512, 2048] and groups["attention"] == [8, 16, 40]


def test_a_group_that_takes_no_time_leaves_the_rest() -> None:
    (step,) = step_times(whole(128, batch=4))
    assert without(step, "norms") == {
        "step": "decode, 4 sequences",
        "context (tokens)": 128,
        "norms (% of the time)": pytest.approx(100 * 16 / 57),
        "without norms": "1.39x as fast",
    }


def test_settings_are_not_mixed() -> None:
    with pytest.raises(ValueError, match="same context"):
        groups_over(step_times([*whole(128), *whole(128, batch=16)]), "context")


def test_measured_parts_make_a_step() -> None:
    quick = dataclasses.replace(PARTS, clock=KernelClock(budget=0, most=1))
    records = [r for w in PARTS.sizes["fast"] for r in measure(quick, w, device="cpu")]
    decode, prefill = step_times(records)
    assert (decode.queries, prefill.queries) == (1, 128) and 0 < decode.share("GEMMs") < 1


def test_a_curve_bends_where_flat_and_rising_meet() -> None:
    curve = [timed(max(50, b / 2), part="down", batch=b) for b in (1, 64, 512)]
    assert bend(curve) == bend(curve[::-1]) == 100
    for wrong in (curve[1:], curve[:1], []):
        with pytest.raises(ValueError, match="at batch 1 and at larger ones"):
            bend(wrong)
