"""Stages as bars, gains from records, and a pipeline of this machine under a stopwatch."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from labllm.bench import Record
from labllm.bench.record import Host, Metric, Spread, Work
from labllm.models.pipeline import stages_view
from labllm.models.pipeline.gains import gains
from labllm.models.pipeline.ladder import PIPELINE
from labllm.models.pipeline.watched import Piped, in_turn, watch
from labllm.models.pipeline.workload import Pipelined
from labllm.models.shapes import SHAPES
from labllm.parallel.schedules import continuous, speedup

SMALL = Pipelined(2, batch=1, context=128, steps=2)


def record(rung: str, micro_batches: int, seconds: float, **fields: object) -> Record:
    nothing = Work(flops=0, bytes=0)
    return Record(
        ladder=PIPELINE.name,
        rung=rung,
        workload=asdict(Pipelined(micro_batches, **fields)),
        status="ok",
        time=Spread(median=seconds, p10=seconds, p90=seconds, samples=1),
        compulsory=nothing,
        moved=nothing,
        metrics={"bubble": Metric(value=0.25, unit="%")},
        host=Host(name="here", kind="cpu", versions={}),
        date="2026-01-01",
        source="",
    )


def test_a_gain_is_told_against_the_same_micro_batches_on_one_device() -> None:
    records = [record("one GPU", m, 2.0 * m) for m in (1, 2, 4)] + [
        record("fill-drain", m, 1.0 * m + 1) for m in (2, 4)
    ]
    records += [record("continuous", 4, 4.0), record("fill-drain", 8, 1.0), record("one GPU", 1, 9.0, batch=64)]
    found = gains(records)
    assert [(g.schedule, g.workload.micro_batches) for g in found] == [
        ("fill-drain", 2),
        ("fill-drain", 4),
        ("continuous", 4),
    ]
    assert [g.gain for g in found] == pytest.approx([4 / 3, 8 / 5, 2.0])
    assert found[1].formula == speedup(2, 4) and found[0].row["bubble (%)"] == 25
    assert found[0].setting == {k: v for k, v in asdict(Pipelined()).items() if k != "micro_batches"}
    assert gains([]) == []


def test_an_even_cut_has_every_layer_once() -> None:
    assert [len(layers) for layers in stages_view.even(32, 5)] == [6, 6, 7, 6, 7]
    assert [i for layers in stages_view.even(10, 4) for i in layers] == list(range(10))
    with pytest.raises(ValueError, match="1 to 4 stages"):
        stages_view.even(4, 5)


def test_the_bars_of_a_cut_are_what_the_whole_model_moves() -> None:
    config = SHAPES["Llama-3.1-8B"]
    whole, halves = (stages_view.step_bytes(config, stages_view.even(32, n), 16, 1024) for n in (1, 2))
    assert sum(sum(parts.values()) for parts in halves) == pytest.approx(sum(whole[0].values()))
    assert halves[0]["head"] == 0 < halves[1]["head"]
    assert "the cut by cost is 1.1x as fast" in stages_view.look("Llama-3.1-8B", 4, 16, 1024).sentence
    assert not stages_view.stages().errors


def test_what_is_watched_is_the_schedule() -> None:
    spans = watch(SMALL, "continuous", (range(5), range(5, 8)))
    assert {span.task for span in spans} == set(continuous(2, 2).table(2))
    first = {span.task: span for span in spans}
    assert all(first[task].end <= first[task._replace(stage=1)].start for task in first if task.stage == 0)


def test_ways_that_take_turns_are_each_its_own_schedule_and_cut() -> None:
    uneven = (range(5), range(5, 8))
    runs = in_turn(SMALL, {"drained": Piped("fill-drain", uneven), "flowing": Piped("continuous", uneven)})
    assert list(runs) == ["drained", "flowing"]
    drained, flowing = ({span.task: span for span in spans} for spans in runs.values())
    assert set(drained) == set(flowing) == set(continuous(2, 2).table(2))
    last_of_a_step = max(span.end for task, span in drained.items() if task.step == 0)
    assert all(span.start >= last_of_a_step for task, span in drained.items() if task.step == 1)


def test_what_cannot_be_watched_is_refused_before_ranks_start() -> None:
    with pytest.raises(ValueError, match="fill-drain or continuous, not 'one GPU'"):
        watch(SMALL, "one GPU")
    with pytest.raises(ValueError, match="2 stages need as many ranges of layers, got 1"):
        watch(SMALL, cut=(range(8),))
    with pytest.raises(ValueError, match="new tokens must be 1 or 128"):
        watch(Pipelined(2, batch=1, context=128, queries=512))
    with pytest.raises(ValueError, match="2 stages need as many ranges of layers, got 3"):
        in_turn(SMALL, {"right": Piped(), "wrong": Piped(cut=(range(2), range(2, 5), range(5, 8)))})
