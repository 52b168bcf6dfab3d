"""The self-check: it passes where everything works and says what does not."""

from __future__ import annotations

import threading

import pytest

from labllm import ui
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


def test_it_passes_again_when_all_is_recorded_already(toy) -> None:
    explore(toy, "size")
    self_check()
    self_check()
    assert explore(toy, "size").table.value.count("<tr>") == 3


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
