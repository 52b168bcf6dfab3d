"""The floors of the house: a file imports only from its own room and from rooms on lower floors.

The table is the whole rule. It keeps the harness ignorant of every technique and the techniques of one another, so that
each room can be read, tested and replaced without those above it.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

FLOORS = (  # the ground first; rooms of one floor do not know each other
    ("home", "devices", "roofline", "compiler"),
    ("hardware",),
    ("kernels",),
    ("bench",),
    ("ui",),
    ("cuda",),
    ("quantization",),
    ("cache",),
    ("attention", "fusion", "sparsity", "parallel"),
    ("models",),
    ("serving",),
    ("planner",),
    ("ladders",),
    ("labs", "notebooks", "workbook"),
    ("claims",),
    ("cli",),
    ("__main__",),
)
HEIGHT = {room: height for height, rooms in enumerate(FLOORS) for room in rooms}
FILES = sorted([*(ROOT / "labllm").rglob("*.py"), *(ROOT / "kernels").rglob("*.py")])


def room_of(file: Path) -> str:
    """labllm/bench/clock.py is in the room bench, labllm/home.py in home, kernels/stream.py in kernels."""
    first, *rest = file.relative_to(ROOT).with_suffix("").parts
    return "kernels" if first == "kernels" else rest[0]


def imported(file: Path, source: str) -> set[str]:
    """Full names of the modules of this project that `source` imports, anywhere in it; relative imports resolved."""
    package = ("labllm", *file.relative_to(ROOT).parts[1:-1]) if file.is_relative_to(ROOT / "labllm") else ("kernels",)
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            base = ".".join([*above, *([node.module] if node.module else [])])
            names |= {f"{base}.{alias.name}" for alias in node.names}
    return {name for name in names if name.split(".")[0] in ("labllm", "kernels")}


def violations(file: Path, source: str) -> list[str]:
    """One sentence for each import of `file` that does not go down."""
    here = room_of(file)
    sentences = []
    for name in sorted(imported(file, source)):
        there = "kernels" if name.startswith("kernels") else name.split(".")[1]
        if there not in HEIGHT:
            continue  # labllm itself: its version
        if there != here and HEIGHT[there] >= HEIGHT[here]:
            sentences.append(f"{here} imports {name}, which is not on a lower floor")
    return sentences


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_imports_go_down(file: Path):
    if file == ROOT / "labllm" / "__init__.py":
        assert imported(file, file.read_text(encoding="utf-8")) == set(), "importing labllm must cost nothing"
        return
    assert room_of(file) in HEIGHT, f"give the room {room_of(file)} a floor in this table"
    assert violations(file, file.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("file", "source", "wrong"),
    [
        ("labllm/bench/clock.py", "from labllm.ui import charts", True),
        ("labllm/bench/clock.py", "def f():\n    import labllm.models.llama", True),
        ("labllm/bench/clock.py", "from .. import attention", True),
        ("labllm/attention/ladder.py", "from labllm.fusion.ladder import LADDER", True),
        ("kernels/stream.py", "from labllm import bench", True),
        ("labllm/attention/ladder.py", "from .naive import attend\nfrom labllm.attention import naive", False),
        ("labllm/bench/clock.py", "from ..kernels import stream\nfrom labllm import __version__", False),
        ("labllm/cli/__init__.py", "from labllm.workbook import reset", False),
    ],
)
def test_the_rule_sees_every_form_of_import(file: str, source: str, wrong: bool):
    assert bool(violations(ROOT / file, source)) is wrong


def test_every_room_that_exists_is_in_the_table_once():
    rooms = [room for floor in FLOORS for room in floor]
    assert len(rooms) == len(set(rooms))
