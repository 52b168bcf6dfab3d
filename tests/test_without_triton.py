"""macOS and Windows have no Triton: hide it, and everything still imports, says what it lacks, and the labs run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell

from labllm.notebooks.normal import read

LABS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))

HIDE_TRITON = """
from importlib.machinery import PathFinder

find_spec = PathFinder.find_spec
PathFinder.find_spec = staticmethod(
    lambda name, *rest: None if name.partition(".")[0] == "triton" else find_spec(name, *rest)
)
"""

IMPORT_EVERYTHING = """
import importlib
import pkgutil
import labllm

names = [module.name for module in pkgutil.walk_packages(labllm.__path__, "labllm.", onerror=lambda name: None)]
kernels = [name for name in names if name.startswith("labllm.kernels.")]
for name in names:
    if name not in kernels and not name.endswith(".__main__"):
        importlib.import_module(name)
assert len(names) - len(kernels) > 10, names
"""

USE_A_KERNEL = """
import pytest
from labllm import kernels
from labllm.kernels import stream

with pytest.raises(kernels.TritonUnavailable, match="is a Triton kernel and Triton is not installed here"):
    stream.copy
with pytest.raises(AttributeError, match="no attribute 'no_such_kernel'"):
    kernels.no_such_kernel
"""

ASK = """
from labllm.hardware import can, interpreting, triton_mode

assert triton_mode("cpu") == "absent"
assert not interpreting()
answer = can("triton", "cpu")
assert not answer and "Triton" in answer.reason, answer
"""


def run(root: Path, code: str) -> None:
    """Run `code` in a new Python from which Triton is hidden."""
    ran = subprocess.run(
        [sys.executable, "-c", HIDE_TRITON + code], cwd=root, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr


def test_every_module_imports(root: Path):
    run(root, IMPORT_EVERYTHING)


def test_a_kernel_says_what_is_missing_when_it_is_used(root: Path):
    run(root, USE_A_KERNEL)


def test_hardware_says_that_triton_is_absent(root: Path):
    run(root, ASK)


@pytest.mark.parametrize("path", LABS, ids=lambda path: path.stem)
def test_a_lab_runs_to_its_end(path: Path, tmp_path: Path):
    notebook = read(path)
    notebook.cells.insert(0, new_code_cell(HIDE_TRITON))
    client = NotebookClient(
        notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": str(path.parent)}}
    )
    client.execute(env=os.environ | {"LABLLM_HOME": str(tmp_path), "LABLLM_FAST": "1"})
