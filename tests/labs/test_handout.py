"""Deleting the solutions gives a hand-out: checks, hints and progress work on; `solution` says that it is not there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

SCRIPT = """
import inspect, sys
sys.path.insert(0, sys.argv[1])
import labllm
assert labllm.__file__.startswith(sys.argv[1]), labllm.__file__
from labllm.labs import check, exercises, hint, solution
for exercise in exercises():
    told = str(solution(exercise.name))
    assert "not shipped" in told, told
    for _ in exercise.hints:
        last = str(hint(exercise.name))
    assert "That is the last hint." in last and "solution" not in last.rpartition("That is")[2], last
    result = check(exercise.name, exercise.reference)
    assert result.passed and "solution" not in str(result), result
    for mistake in exercise.mistakes:
        assert check(exercise.name, mistake.fn).cause == mistake.cause
print("hand-out ok")
"""


def test_without_the_folder_of_solutions_everything_else_works(root: Path, tmp_path: Path):
    ignored = shutil.ignore_patterns("__pycache__", "*.safetensors", "records")
    shutil.copytree(root / "labllm", tmp_path / "labllm", ignore=ignored)
    shutil.copytree(root / "kernels", tmp_path / "kernels", ignore=ignored)
    shutil.copy(root / "pyproject.toml", tmp_path)
    shutil.rmtree(tmp_path / "labllm" / "labs" / "solutions")
    env = os.environ | {"LABLLM_HOME": str(tmp_path / "home")}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path)],
        capture_output=True,
        text=True,
        env=env,
        cwd=tmp_path,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "hand-out ok"
