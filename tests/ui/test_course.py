"""Courses: a line a name, ending where its numbers end."""

from __future__ import annotations

import pytest

from labllm.ui import course

COURSES = {"a": [0.1, 0.2, 0.4, 0.6], "b": [0.9, 0.9]}


def test_lines_end_where_their_numbers_end_and_are_named():
    ax = course.chart(COURSES, "step", "slots in use", "Title").axes[0]
    lines = {line.get_label(): line for line in ax.lines}
    assert list(lines["a"].get_ydata()) == COURSES["a"] and len(lines["b"].get_xdata()) == 2
    assert {"a", "b"} <= {t.get_text() for t in ax.texts}
    assert ax.get_ylim()[0] == 0 and ax.get_ylim()[1] > 1


def test_the_sentence_ranks_the_second_halves():
    words = course.conclusion(COURSES, "step", "slots in use")
    assert words == "Slots in use, mean of the second half: b 90 %, a 50 %."


def test_steps_stand_where_they_are():
    ax = course.chart(COURSES, "columns", "error", "Title", step=8).axes[0]
    places = {line.get_label(): list(line.get_xdata()) for line in ax.lines}
    assert places["a"] == [0, 8, 16, 24] and places["b"] == [0, 8]
    assert 24 <= ax.get_xlim()[1] < 40


def test_thousands_of_steps_have_separators():
    ax = course.chart({"a": [0.5] * 3000}, "step", "slots in use", "Title").axes[0]
    ax.figure.canvas.draw()
    assert "2,000" in [tick.get_text() for tick in ax.get_xticklabels()]


def test_other_units_reach_to_their_largest():
    ax = course.chart({"a": [5, 250]}, "step", "sequences", "Title", unit="sequences").axes[0]
    assert ax.get_ylim()[1] >= 250


@pytest.mark.parametrize("courses", [{}, {"a": []}])
def test_refuses_nothing(courses):
    with pytest.raises(ValueError, match="at least one"):
        course.chart(courses, "step", "y", "Title")
