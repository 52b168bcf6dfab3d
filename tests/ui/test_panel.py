"""Panels: drawing, running in a thread, stopping, and errors that nobody can overlook."""

from __future__ import annotations

import ast
import threading
from pathlib import Path

import pandas as pd
import pytest
import torch

from labllm import ui
from labllm.ui import Panel, View, checks, choice, slider, switch

SOON = 20  # seconds after which a thread is taken for stuck


def bars(n: int, kind: str = "a") -> View:
    return View(ui.memory.chart({kind: {"part": n}}), f"{kind} has {n}", pd.DataFrame({"n": [n]}))


def test_moving_a_control_redraws_picture_sentence_and_table() -> None:
    panel = Panel.of(bars, n=slider(1, 2), kind=choice("a", "b"))
    before = panel.image.value
    panel.controls["n"].value = 2
    assert panel.image.value != before and bytes(panel.image.value).startswith(b"\x89PNG")
    assert "a has 2" in panel.sentence.value and ">2</td>" in panel.table.value
    panel.controls["n"].value = 1
    assert panel.image.value == before


def test_a_plain_tuple_will_do() -> None:
    panel = Panel.of(lambda n: tuple(bars(n))[:2], n=slider(1, 2))
    assert "a has 1" in panel.sentence.value and panel.table.value == ""


def test_parts_and_controls_carry_classes() -> None:
    panel = Panel(bars, {"n": slider(1, 2)}, lambda values, job: None)
    parts = (panel.image, panel.run_button, panel.stop_button, panel.status, panel.error, panel.controls["n"])
    names = ("plot", "run", "stop", "status", "error", "n")
    assert all(f"labllm-{name}" in part._dom_classes for name, part in zip(names, parts, strict=True))


def test_the_stored_panel_is_a_still_picture_with_its_sentence() -> None:
    bundle = Panel.of(bars, n=slider(1, 2))._repr_mimebundle_()
    assert 'alt="a has 1"' in bundle["text/html"] and bundle["text/plain"] == "a has 1"
    assert "application/vnd.jupyter.widget-view+json" in bundle


def test_a_drawing_error_is_shown_kept_and_says_that_the_picture_is_old() -> None:
    def draw(n: int) -> View:
        if n == 2:
            raise ValueError("two is <too> many: choose one")
        return bars(n)

    panel = Panel.of(draw, n=slider(1, 2))
    picture = panel.image.value
    panel.controls["n"].value = 2
    assert "ValueError" in panel.error.value and "two is &lt;too&gt; many" in panel.error.value
    assert "<details>" in panel.error.value and "in draw" in panel.error.value
    assert panel.image.value == picture and "before this error" in panel.sentence.value
    panel.controls["n"].value = 1
    assert panel.error.value == "" and "a has 1" in panel.sentence.value
    with pytest.raises(ValueError, match="two is"):
        ui.self_check()


def test_a_panel_that_cannot_be_drawn_at_all_still_shows_why() -> None:
    def draw(n: int) -> View:
        raise ZeroDivisionError("nothing to divide")

    panel = Panel.of(draw, n=slider(1, 2))
    assert "ZeroDivisionError" in panel.error.value
    assert bytes(panel.image.value).startswith(b"\x89PNG")


def test_run_works_in_a_thread_and_draws_what_it_adds() -> None:
    seen, main = [], threading.current_thread()

    def work(values, job):
        seen.append((threading.current_thread() is main, torch.is_inference_mode_enabled(), values))
        job.expect(2)
        for n in (1, 2):
            total.append(n)
            job.result(f"n = {n}")

    total: list[int] = []
    panel = Panel(lambda n: bars(sum(total)), {"n": slider(1, 2)}, work)
    panel.run_button.click()
    assert panel.wait(SOON)
    assert seen == [(False, True, {"n": 1})]
    assert "a has 3" in panel.sentence.value and "finished: 2 results" in panel.status.value
    assert not panel.run_button.disabled and panel.stop_button.disabled and panel.bar.layout.display == "none"


def test_stop_ends_the_run_and_keeps_partial_results() -> None:
    first, asked = threading.Event(), threading.Event()
    rows: list[int] = []

    def work(values, job):
        job.expect(3)
        for n in range(3):
            if job.stopped():
                return
            rows.append(n)
            job.result(f"row {n}")
            first.set()
            assert asked.wait(SOON)

    panel = Panel(lambda n: bars(len(rows)), {"n": slider(1, 2)}, work)
    panel.run()
    assert first.wait(SOON)
    assert panel.busy and panel.run_button.disabled and not panel.stop_button.disabled
    assert "1 of 3" in panel.status.value and panel.bar.value == 1 and panel.bar.max == 3
    panel.stop_button.click()
    asked.set()
    assert panel.wait(SOON)
    assert rows == [0] and "a has 1" in panel.sentence.value
    assert "stopped; 1 result kept" in panel.status.value


def test_sliders_answer_while_a_run_goes_on_and_a_second_run_is_refused() -> None:
    started, end = threading.Event(), threading.Event()

    def work(values, job):
        started.set()
        assert end.wait(SOON)

    panel = Panel(bars, {"n": slider(1, 2)}, work)
    panel.run()
    assert started.wait(SOON)
    panel.controls["n"].value = 2
    assert "a has 2" in panel.sentence.value
    with pytest.raises(RuntimeError, match="press Stop"):
        panel.run()
    end.set()
    assert panel.wait(SOON)


def test_an_error_in_the_thread_is_shown_and_raised_by_the_self_check() -> None:
    def work(values, job):
        job.result("one")
        raise RuntimeError("the engine fell over")

    panel = Panel(bars, {"n": slider(1, 2)}, work)
    panel.run_button.click()
    assert panel.wait(SOON)
    assert "RuntimeError" in panel.error.value and "the engine fell over" in panel.error.value
    assert "ended by an error, see above; 1 result kept" in panel.status.value
    assert not panel.run_button.disabled
    with pytest.raises(RuntimeError, match="fell over"):
        ui.self_check()


def test_a_panel_without_work_has_no_run() -> None:
    with pytest.raises(ValueError, match="nothing to run"):
        Panel.of(bars, n=slider(1, 2)).run()


def test_check_boxes_gather_their_names_and_follow_their_value() -> None:
    boxes = checks("a", "b", ticked=["b"])
    assert boxes.value == ("b",)
    boxes.boxes["a"].value = True
    assert boxes.value == ("a", "b")
    boxes.value = ("a",)
    assert not boxes.boxes["b"].value


def test_controls_refuse_what_makes_no_sense() -> None:
    with pytest.raises(ValueError, match="at least two values"):
        slider(1)
    with pytest.raises(ValueError, match="must be one of"):
        choice("a", "b", value="c")
    with pytest.raises(ValueError, match="cannot be ticked"):
        checks("a", ticked=["b"])
    assert switch(True).value is True


def test_the_room_uses_no_pyplot_no_clock_and_no_output_widget(root: Path) -> None:
    for path in sorted((root / "labllm" / "ui").glob("*.py")):
        tree = ast.parse(path.read_text())
        imported = {a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}
        imported |= {n.module for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and n.module}
        names = {n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute)}
        assert not imported & {"matplotlib.pyplot", "time", "timeit"}, path
        assert not names & {"Output", "interact", "interactive", "interactive_output"}, path
