"""A pipeline's timeline is drawn box by box, and its panel tells gains that the schedules have."""

from __future__ import annotations

import pytest
from matplotlib.collections import PolyCollection

from labllm.parallel import timeline_view
from labllm.parallel.bubble_view import bubbles, gain, look
from labllm.parallel.schedules import continuous, fill_drain, speedup
from labllm.parallel.timeline import simulate


def test_every_task_is_a_box_and_every_box_that_is_wide_enough_bears_its_micro_batch() -> None:
    groups = {"one": simulate(fill_drain(2, 1), [1.0, 1.0]), "four": simulate(fill_drain(2, 4), [0.25, 0.25], 2)}
    figure = timeline_view.chart(groups, "Two ways")
    (ax,) = figure.axes
    boxes = [path for drawn in ax.collections if isinstance(drawn, PolyCollection) for path in drawn.get_paths()]
    assert len(boxes) == sum(map(len, groups.values()))
    numbers = [text.get_text() for text in ax.texts if text.get_text().isdigit()]
    assert sorted(numbers) == sorted(str(span.task.micro_batch) for spans in groups.values() for span in spans)
    assert [tick.get_text() for tick in ax.get_yticklabels()] == ["stage 0", "stage 1"] * 2
    assert timeline_view.conclusion(groups) == "Of the stages' time the bubble takes 50% with one, 20% with four."


def test_what_a_stage_computes_is_its_time_without_the_bubble() -> None:
    one, four = timeline_view.rows(
        {"one": simulate(fill_drain(2, 1), [1.0, 1.0]), "four": simulate(fill_drain(2, 4), [0.3, 0.3])}
    )
    assert one == {"way": "one", "time (ms)": 2000, "bubble (%)": 50, "a stage computes (ms)": 1000}
    assert four["time (ms)"] == pytest.approx(1500) and four["bubble (%)"] == pytest.approx(20)
    assert four["a stage computes (ms)"] == pytest.approx(1200)


def test_times_begin_at_the_first_start_whatever_the_clock_says() -> None:
    late = [span._replace(start=span.start + 7, end=span.end + 7) for span in simulate(fill_drain(2, 2), [1.0, 1.0])]
    (ax,) = timeline_view.chart({"late": late}, "").axes
    assert ax.get_xlim() == pytest.approx((0, 1.01 * 3))


@pytest.mark.parametrize("groups", [{}, {"nothing": []}])
def test_a_timeline_without_a_task_is_refused(groups: dict) -> None:
    with pytest.raises(ValueError, match="at least one"):
        timeline_view.chart(groups, "")


@pytest.mark.parametrize(("stages", "count"), [(2, 1), (2, 8), (4, 6)])
def test_the_gain_of_fill_drain_is_the_formula_and_continuous_comes_near_the_stages(stages: int, count: int) -> None:
    assert gain(fill_drain(stages, count), [1.0] * stages) == pytest.approx(speedup(stages, count))
    if count >= stages:
        assert 0.97 * stages < gain(continuous(stages, count), [1.0] * stages) < stages


def test_the_panel_says_what_unequal_stages_allow() -> None:
    assert "such stages allow 1.5x at most" in look(2, 8, 2.0, 0.0).sentence
    assert "at most" not in look(2, 8, 1.0, 0.0).sentence
    assert not bubbles().errors
