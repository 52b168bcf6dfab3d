"""A learner's minutes with a lab, in JupyterLab in a headless browser: slide, run, watch, and see what went wrong."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import nbformat
import pytest

pytestmark = pytest.mark.browser

LADDER = """\
from labllm import ui
from labllm.attention.ladder import DECODE
from labllm.bench import Rung

def broken(inputs):
    raise RuntimeError("this rung always fails")

ladder = DECODE.only("recompute", "cached").extended(Rung("broken", broken))
"""
PANEL = """\
heads = {"q_heads": 4, "kv_heads": 2, "head_dim": 64, "dtype": "float32"}
ui.explore(ladder, "context", fixed=heads, records=[])
"""
CALCULATOR = """\
def weigh(tokens):
    bars = {"one sequence": {"KV cache": 131072.0 * tokens}}
    return ui.memory.chart(bars), ui.memory.conclusion(bars)

ui.Panel.of(weigh, tokens=ui.slider(1024, 2048, 4096))
"""
ENDED = re.compile("^(finished|stopped|ended)")


class Shown:
    """One panel on the page, by its parts."""

    def __init__(self, panel: Any) -> None:
        self.panel = panel
        self.plot, self.status, self.sentence = (panel.locator(f".labllm-{n}") for n in ("plot", "status", "sentence"))
        self.rows, self.alert = panel.locator(".labllm-table tbody tr"), panel.locator(".labllm-error [role=alert]")
        self.progress = panel.locator(".labllm-progress")

    @property
    def source(self) -> str:
        self.plot.wait_for()
        return self.plot.get_attribute("src")

    def press(self, button: str) -> None:
        self.panel.locator(f"button.labllm-{button}").click()

    def move(self, control: str, key: str) -> None:
        """Press an arrow key on a slider, and wait until there is another picture."""
        before = self.source
        self.panel.locator(f".labllm-{control} .noUi-handle").press(key)
        self.changes(before)

    def changes(self, before: str) -> None:
        _expect(self.plot).not_to_have_attribute("src", before)

    def says(self, words: str | re.Pattern[str]) -> None:
        _expect(self.status).to_have_text(re.compile(words))


def _expect(locator: Any) -> Any:
    from playwright.sync_api import expect

    expect.set_options(timeout=60_000)
    return expect(locator)


def write(path: Path, book: Any, *sources: str) -> Path:
    book.cells += [nbformat.v4.new_code_cell(source) for source in sources]
    nbformat.write(book, path)
    return path


@pytest.fixture
def trial(tmp_path: Path) -> Path:
    """A small notebook: an explorer of three rungs, one of which fails, and a calculator."""
    book = nbformat.v4.new_notebook()
    book.metadata.kernelspec = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return write(tmp_path / "trial.ipynb", book, LADDER, PANEL, CALCULATOR)


@pytest.fixture
def lab_02(tmp_path: Path, root: Path) -> Path:
    """Lab 02 as it is, with one cell more: an explorer of which a rung fails."""
    book = nbformat.read(root / "notebooks" / "02_kv_cache.ipynb", as_version=4)
    return write(tmp_path / "02_kv_cache.ipynb", book, LADDER + PANEL)


def test_lab_02_slides_runs_and_shows_an_error(lab: Any, lab_02: Path) -> None:
    page, ok = lab(lab_02)
    assert ok, "a cell of lab 02 raised"
    panels = page.locator(".labllm-panel:has(button.labllm-run)")
    panels.last.wait_for()
    decode, failing = Shown(panels.first), Shown(panels.last)

    pixels = decode.plot.screenshot()
    decode.move("batch", "ArrowRight")
    assert decode.plot.screenshot() != pixels

    before, rows = decode.source, decode.rows.count()
    decode.press("run")
    decode.progress.wait_for(state="visible")
    decode.says(r"[1-9][0-9]* of [0-9]+")
    decode.changes(before)
    decode.says(ENDED)
    assert decode.progress.is_hidden()
    assert decode.rows.count() > rows
    assert "on this machine" in decode.sentence.inner_text()

    failing.press("run")
    failing.says(ENDED)
    assert "broken failed" in failing.alert.first.inner_text()
    assert "this rung always fails" in failing.alert.first.inner_text()
    assert failing.rows.filter(has_text="cached").count() >= 1


def test_stop_ends_a_run_and_keeps_its_points(lab: Any, trial: Path) -> None:
    page, ok = lab(trial)
    assert ok, "a cell raised"
    shown = Shown(page.locator(".labllm-panel").first)
    assert shown.rows.count() == 0
    shown.press("run")
    shown.says(r"[1-9][0-9]* of ")
    shown.press("stop")
    shown.says(ENDED)
    shown.says("kept")
    assert shown.rows.count() >= 1
    assert shown.panel.locator("button.labllm-run").is_enabled()


def test_a_calculator_answers_at_once(lab: Any, trial: Path) -> None:
    page, ok = lab(trial)
    assert ok, "a cell raised"
    shown = Shown(page.locator(".labllm-panel").last)
    _expect(shown.sentence).to_contain_text("134 MB")
    shown.move("tokens", "ArrowRight")
    _expect(shown.sentence).to_contain_text("268 MB")
