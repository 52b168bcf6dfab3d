"""Schedules as tables: whatever the sizes, every task is done once, in order, and after what it needs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labllm.parallel.schedules import SCHEDULES, Schedule, Task, bubble_fraction, continuous, fill_drain, speedup
from labllm.parallel.timeline import bubble, length, simulate, stage_seconds

SIZES = st.integers(1, 6)
MADE = st.builds(lambda make, p, m: make(p, m), st.sampled_from(sorted(SCHEDULES)).map(SCHEDULES.get), SIZES, SIZES)


@given(MADE, st.integers(1, 4))
def test_every_task_is_done_once_and_a_stage_does_one_a_tick(schedule: Schedule, steps: int) -> None:
    table = schedule.table(steps)
    every = {(s, j, k) for s in range(schedule.stages) for j in range(schedule.micro_batches) for k in range(steps)}
    assert len(table) == len(every) and set(table) == every
    assert len({(task.stage, schedule.tick(task)) for task in table}) == len(table)
    for stage in range(schedule.stages):
        mine = [task for task in table if task.stage == stage]
        assert mine == list(schedule.tasks_of(stage, steps))
        assert mine == sorted(mine, key=lambda task: (task.step, task.micro_batch))


@given(MADE, st.integers(1, 4))
def test_what_a_task_needs_was_done_before_and_comes_in_the_order_of_sending(schedule: Schedule, steps: int) -> None:
    received: dict[int, list[Task]] = {stage: [] for stage in range(schedule.stages)}
    for task in schedule.table(steps):
        needs = schedule.needs(task)
        assert all(schedule.tick(needed) < schedule.tick(task) for needed in needs)
        assert all(schedule.feeds(needed).stage == task.stage for needed in needs)
        entry = task.stage == 0 and task.step == 0
        assert entry or task in map(schedule.feeds, needs)
        received[task.stage] += [needed for needed in needs if needed not in received[task.stage]]
    for stage, come in received.items():
        sent = [t for t in schedule.tasks_of((stage - 1) % schedule.stages, steps) if schedule.feeds(t).step < steps]
        assert come == sent


@given(SIZES, SIZES, st.integers(1, 4))
def test_fill_and_drain_takes_the_formula_and_continuous_never_more(
    stages: int, micro_batches: int, steps: int
) -> None:
    drained = simulate(fill_drain(stages, micro_batches), [1.0] * stages, steps)
    assert length(drained) == steps * (micro_batches + stages - 1)
    assert bubble(drained) == pytest.approx(bubble_fraction(stages, micro_batches))
    flowing = simulate(continuous(stages, micro_batches), [1.0] * stages, steps)
    assert length(flowing) == (steps - 1) * max(micro_batches, stages) + micro_batches + stages - 1 <= length(drained)


@given(MADE, st.integers(1, 3))
def test_a_timeline_of_equal_stages_is_the_table(schedule: Schedule, steps: int) -> None:
    for span in simulate(schedule, [1.0] * schedule.stages, steps):
        assert (span.start, span.end) == (schedule.tick(span.task), schedule.tick(span.task) + 1)


def test_figures_that_are_known() -> None:
    assert bubble_fraction(2, 1) == 0.5 and bubble_fraction(4, 4) == pytest.approx(3 / 7) and bubble_fraction(1, 5) == 0
    assert speedup(2, 8) == pytest.approx(16 / 9) and speedup(2, 1) == 1
    assert continuous(2, 4).bubble == 0 and continuous(4, 1).bubble == 0.75 == fill_drain(4, 1).bubble


def test_the_dearest_stage_sets_the_pace_and_a_hop_shows_where_there_is_one_micro_batch() -> None:
    spans = simulate(continuous(2, 4), [1.0, 3.0], steps=5)
    assert length(spans) == 1 + 5 * 4 * 3 and stage_seconds(spans) == [1.0, 3.0]
    assert length(simulate(fill_drain(2, 1), [1.0, 1.0], steps=3, hop=0.25)) == pytest.approx(3 * 2 + 5 * 0.25)
    with pytest.raises(ValueError, match="2 stages need as many times"):
        simulate(fill_drain(2, 1), [1.0])


@pytest.mark.parametrize(("arguments", "words"), [((0, 1, 1), "at least one stage"), ((2, 3, 2), "at least 3 ticks")])
def test_a_schedule_that_cannot_be_is_refused(arguments: tuple[int, int, int], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Schedule("mine", *arguments)
