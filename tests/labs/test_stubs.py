"""A lab's notebook holds the exercise's stub word for word, so that text and check cannot drift apart."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from labllm.labs.registry import exercises, get

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_checks_the_exercises_of_its_lab_with_their_own_stubs(notebook: Path):
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    checked = {name for source in code for name in re.findall(r"\bcheck\(\s*[\"'](\w+)[\"']", source)}
    assert checked == {exercise.name for exercise in exercises(int(notebook.name[:2]))}
    for name in checked:
        assert any(get(name).stub.strip() in source for source in code), f"no cell holds the stub of {name}"


def test_stubs_are_formatted_as_the_notebooks_are():
    text = "import torch\n\n\n" + "\n\n".join(exercise.stub for exercise in exercises())
    command = [
        sys.executable,
        "-m",
        "ruff",
        "format",
        "--diff",
        "--line-length",
        "120",
        "--stdin-filename",
        "stubs.py",
        "-",
    ]
    done = subprocess.run(command, input=text, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
