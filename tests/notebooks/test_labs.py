"""What every lab keeps to, so that a learner who knows one finds their way in all of them, and tests can drive them."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import nbformat
import pytest

from labllm.notebooks.index import describe
from labllm.notebooks.normal import read

ROOT = Path(__file__).parents[2]
LABS = sorted((ROOT / "notebooks").glob("*.ipynb"))
# Output widgets stall runs without a front end and swallow errors; pyplot keeps figures in global state.
REFUSED = re.compile(r"\b(interact|interactive|interactive_output)\(|\bOutput\(|\bpyplot\b|%matplotlib\b|%pip\b|!pip\b")


@pytest.fixture(params=LABS, ids=lambda path: path.stem)
def path(request: pytest.FixtureRequest) -> Path:
    return request.param


@pytest.fixture
def lab(path: Path) -> nbformat.NotebookNode:
    return read(path)


def headings(lab: nbformat.NotebookNode) -> list[tuple[int, str, int]]:
    """Level, text and cell of every Markdown heading, code fences left out."""
    found = []
    for index, cell in enumerate(lab.cells):
        if cell.cell_type == "markdown":
            prose = re.sub(r"^```.*?^```", "", cell.source, flags=re.MULTILINE | re.DOTALL)
            found += [(len(m[1]), m[2].strip(), index) for m in re.finditer(r"^(#+) (.+)$", prose, re.MULTILINE)]
    return found


def test_labs_exist():
    assert [path.name[:2] for path in LABS][:3] == ["00", "01", "02"]


def test_headings_are_an_outline(lab: nbformat.NotebookNode):
    levels = [level for level, _, _ in headings(lab)]
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))


def test_the_core_is_a_sitting(path: Path, lab: nbformat.NotebookNode):
    further = next((cell for _, text, cell in headings(lab) if text == "Further"), len(lab.cells))
    assert further <= 45, "the core holds at most 45 cells; the rest goes under the heading 'Further'"
    core = nbformat.v4.new_notebook(metadata=lab.metadata, cells=lab.cells[: further + 1])
    assert len(describe(path, core).exercises) <= 3


def test_what_it_needs_exists_and_comes_before(path: Path, lab: nbformat.NotebookNode):
    numbers = [other.name[:2] for other in LABS]
    for needed in describe(path, lab).needs:
        assert needed in numbers and needed < path.name[:2]


def test_the_last_cell_checks_the_lab_itself(lab: nbformat.NotebookNode):
    *_, before, last = lab.cells
    assert "self-check" in last.metadata.get("tags", []) and last.cell_type == "code"
    assert "for maintainers" in f"{before.source}\n{last.source}".lower()


def test_code_keeps_to_panels(lab: nbformat.NotebookNode):
    for cell in lab.cells:
        if cell.cell_type == "code":
            assert not REFUSED.search(cell.source), cell.source
