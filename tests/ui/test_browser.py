"""A learner's first minutes, in JupyterLab in a headless browser: slide, run, watch, and see what went wrong."""

from __future__ import annotations

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
PANEL = (
    'ui.explore(ladder, "context", fixed={"q_heads": 4, "kv_heads": 2, "head_dim": 64, "dtype": "float32"}, records=[])'
)
CALCULATOR = """\
def weigh(tokens):
    bars = {"one sequence": {"KV cache": 131072.0 * tokens}}
    return ui.memory.chart(bars), ui.memory.conclusion(bars)

ui.Panel.of(weigh, tokens=ui.slider(1024, 2048, 4096))
"""
CHANGED = "([name, src]) => document.querySelector(name).src !== src"
ENDED = "() => /^(finished|stopped|ended)/.test(document.querySelector('.labllm-status').innerText)"


@pytest.fixture
def notebook(tmp_path: Path) -> Path:
    """A notebook with one explorer of three rungs, one of which fails, and one calculator."""
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(s) for s in (LADDER, PANEL, CALCULATOR)])
    book.metadata.kernelspec = {"name": "python3", "display_name": "Python 3", "language": "python"}
    path = tmp_path / "trial.ipynb"
    nbformat.write(book, path)
    return path


def source(page: Any, picture: str) -> str:
    image = page.locator(picture).first
    image.wait_for()
    return image.get_attribute("src")


def test_slide_run_watch_and_see_the_error(lab: Any, notebook: Path) -> None:
    page, ok = lab(notebook)
    assert ok, "a cell raised"
    plot = "img.labllm-plot"
    first = source(page, plot)
    pixels = page.locator(plot).first.screenshot()

    page.locator(".labllm-batch .noUi-handle").press("ArrowRight")
    page.wait_for_function(CHANGED, arg=[plot, first])
    assert page.locator(plot).first.screenshot() != pixels
    page.locator(".labllm-batch .noUi-handle").press("ArrowLeft")

    assert page.locator(".labllm-table tbody tr").count() == 0
    before = source(page, plot)
    page.locator("button.labllm-run").click()
    page.locator(".labllm-progress").wait_for(state="visible")
    page.wait_for_function("() => / of [0-9]+/.test(document.querySelector('.labllm-status').innerText)")
    page.wait_for_function(CHANGED, arg=[plot, before])
    page.wait_for_function(ENDED)
    assert page.locator(".labllm-table tbody tr", has_text="cached").count() > 1
    assert "on this machine" in page.locator(".labllm-sentence").first.inner_text()

    alert = page.locator(".labllm-error [role=alert]").first
    assert "broken failed" in alert.inner_text() and "this rung always fails" in alert.inner_text()
    assert page.locator(".labllm-progress").is_hidden()


def test_stop_ends_a_run_and_keeps_its_points(lab: Any, notebook: Path) -> None:
    page, ok = lab(notebook)
    assert ok, "a cell raised"
    page.locator("button.labllm-run").click()
    page.wait_for_function("() => /[1-9][0-9]* of /.test(document.querySelector('.labllm-status').innerText)")
    page.locator("button.labllm-stop").click()
    page.wait_for_function(ENDED)
    assert "kept" in page.locator(".labllm-status").inner_text()
    assert page.locator(".labllm-table tbody tr").count() >= 1
    assert page.locator("button.labllm-run").is_enabled()


def test_a_calculator_answers_at_once(lab: Any, notebook: Path) -> None:
    page, ok = lab(notebook)
    assert ok, "a cell raised"
    sentence = page.locator(".labllm-sentence").last
    sentence.wait_for()
    assert "134 MB" in sentence.inner_text()
    page.locator(".labllm-tokens .noUi-handle").press("ArrowRight")
    page.wait_for_function(
        "() => [...document.querySelectorAll('.labllm-sentence')].at(-1).innerText.includes('268 MB')"
    )
