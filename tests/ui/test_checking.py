"""The self-check: it passes where everything works and says what does not."""

from __future__ import annotations

import threading

import pytest

from labllm import ui
from labllm.bench import load
from labllm.ui import Panel, SelfCheckError, View, explore, self_check, slider


def bars(n: int, **_: int) -> View:
    return View(ui.memory.chart({"a": {"part": n}}), f"a has {n}")


def test_a_panel_that_works_passes_and_is_left_as_it_was(toy, capsys) -> None:
    panel = explore(toy, "size")
    calculator = Panel.of(bars, n=slider(1, 2), name="calculator")
    before = panel.values
    self_check()
    assert panel.values == before and calculator.values == {"n": 1}
    assert capsys.readouterr().out == "toy over size: 5 controls moved, Run gave 2 rows\ncalculator: 1 controls moved\n"


def shown(panel: Panel) -> dict[str, object]:
    """All that a learner sees of a panel."""
    parts = ("image", "sentence", "table", "status", "error", "bar")
    looks = {part: getattr(panel, part).value for part in parts}
    buttons = (panel.run_button.disabled, panel.stop_button.disabled, panel.bar.layout.display)
    return looks | panel.values | {"picture": panel.picture, "buttons": buttons, "done": panel.job.done}


def test_a_panel_that_never_ran_still_looks_so_and_nothing_is_recorded(toy) -> None:
    panel = explore(toy, "size")
    before = shown(panel)
    self_check()
    assert shown(panel) == before and "Run measures" in panel.status.value
    assert load("toy") == []
    panel.redraw()
    assert panel.table.value == "", "the check's own points must not come back"


def test_what_a_learner_measured_stays_as_it_is_shown_and_kept(toy) -> None:
    panel = explore(toy, "size")
    panel.run()
    assert panel.wait(60)
    panel.controls["quantity"].value = "bandwidth"
    before, kept = shown(panel), load("toy")
    self_check()
    self_check()
    assert shown(panel) == before and "finished: 8 results" in panel.status.value
    assert load("toy") == kept
    panel.redraw()
    assert shown(panel)["table"] == before["table"]


def test_a_panel_is_put_back_even_where_the_check_fails() -> None:
    panel = Panel(bars, {"n": slider(1, 2)}, lambda values, job: job.result("x"), name="blind", ready="ready")
    before = shown(panel)
    with pytest.raises(SelfCheckError):
        self_check()
    assert shown(panel) == before


def test_a_control_that_does_nothing_is_caught() -> None:
    Panel.of(bars, n=slider(1, 2), idle=slider(1, 2), name="calculator")
    with pytest.raises(SelfCheckError, match="calculator: moving 'idle' changes nothing"):
        self_check()


def test_a_run_without_results_is_caught() -> None:
    Panel(bars, {"n": slider(1, 2)}, lambda values, job: None, name="lazy")
    with pytest.raises(SelfCheckError, match="lazy: Run ended without a result"):
        self_check()


def test_a_run_whose_results_are_not_drawn_is_caught() -> None:
    Panel(bars, {"n": slider(1, 2)}, lambda values, job: job.result("x"), name="blind")
    with pytest.raises(SelfCheckError, match="blind: Run changed no picture"):
        self_check()


def test_a_run_that_does_not_end_is_caught() -> None:
    end = threading.Event()
    panel = Panel(bars, {"n": slider(1, 2)}, lambda values, job: end.wait(20), name="endless")
    with pytest.raises(TimeoutError, match="endless: Run did not end"):
        self_check(seconds=0.05)
    end.set()
    assert panel.wait(20)


def test_what_a_thread_raised_earlier_is_raised() -> None:
    def work(values, job):
        raise KeyError("lost")

    panel = Panel(bars, {"n": slider(1, 2)}, work)
    panel.run()
    assert panel.wait(20)
    with pytest.raises(KeyError, match="lost"):
        self_check()


def test_no_panel_is_an_error() -> None:
    with pytest.raises(ValueError, match="no panel to check"):
        self_check()
