"""Timelines as pictures: every task is a bar at its place, and the sentence says what the table says."""

from __future__ import annotations

import pytest

from labllm.parallel.schedules import Task, continuous
from labllm.parallel.timeline import Span, bubble, simulate
from labllm.parallel.timeline_view import LOOKS, conclusion, draw, look, pipelines, rows, table
from labllm.ui import Panel, self_check


def test_every_task_is_a_bar_in_its_stages_row() -> None:
    spans = [Span(task, start + 5, end + 5) for task, start, end in simulate(continuous(2, 10), [1.0, 2.0], 2)]
    drawn = rows(spans)
    assert len(drawn) == 2 and all(len(row) == LOOKS for row in drawn)
    for stage, row in enumerate(drawn):
        bars = sorted(bar for kind in row.values() for bar in kind)
        assert bars == sorted((span.start - 5, span.seconds) for span in spans if span.task.stage == stage)
    assert len(drawn[0]["micro-batch 1"]) == 4  # the first and the ninth, twice


def test_sentence_and_table_say_the_same() -> None:
    spans = {"mine": [Span(Task(0, 0, 0), 0.0, 2e-3), Span(Task(1, 0, 0), 2e-3, 4e-3)]}
    assert conclusion(spans) == "Mine takes 4 ms, 50% of it a bubble."
    frame = table(spans)
    assert frame["bubble (%)"].tolist() == [100 * bubble(spans["mine"])] and frame["stage 1 (s)"].tolist() == [2e-3]


def test_nothing_done_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one row"):
        draw({"mine": []}, "Nothing")


def test_the_view_names_the_formula() -> None:
    view = look(4, 4, 1.0, 0.0)
    assert "Fill-drain takes 21 ticks, 43% of it a bubble" in view.sentence and "it is 43% when" in view.sentence
    assert len(view.table) == 2


def test_every_control_of_the_panel_changes_the_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Panel, "made", [])
    pipelines()
    self_check()
