"""`labllm.kernels` is this project's folder kernels/, wherever Python starts and whatever else is called `kernels`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from transformers.utils import import_utils

from labllm.hardware import interpreting

MODEL_CLASSES = """
import labllm.hardware
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM
from transformers.models.qwen3 import Qwen3ForCausalLM

config = LlamaConfig(hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2, vocab_size=16)
LlamaForCausalLM(config)
"""

# A stand-in for Hugging Face's package: every name it exports is a decorator factory that changes nothing.
HUGGING_FACE_KERNELS = """
class Anything:
    def __init__(self, *args, **kwargs): pass
    def __call__(self, decorated): return decorated

def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    return Anything
"""


def run(code: str, cwd: Path, *paths: Path) -> str:
    """What `code` prints in a new Python that starts in `cwd` and has `paths` before the installed packages."""
    env = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, paths))}
    env.pop("TRITON_INTERPRET", None)
    ran = subprocess.run([sys.executable, "-c", code], cwd=cwd, env=env, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.strip()


@pytest.fixture(params=["root", "root/tests", "elsewhere"])
def cwd(request: pytest.FixtureRequest, root: Path, tmp_path: Path) -> Path:
    return {"root": root, "root/tests": root / "tests", "elsewhere": tmp_path}[request.param]


def test_the_folder_has_no_init_file(root: Path):
    assert not (root / "kernels" / "__init__.py").exists()


def test_editable_install_imports_from_anywhere(cwd: Path, root: Path):
    found = run("from importlib.util import find_spec; print(find_spec('labllm.kernels.stream').origin)", cwd)
    assert Path(found) == root / "kernels" / "stream.py"


@pytest.mark.parametrize("version", ["0.16.2", import_utils.KERNELS_MIN_VERSION], ids=["older", "in use"])
def test_hugging_faces_package_and_ours_live_side_by_side(version: str, root: Path, tmp_path: Path):
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels" / "__init__.py").write_text(f"__version__ = {version!r}\n{HUGGING_FACE_KERNELS}")
    info = tmp_path / f"kernels-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: kernels\nVersion: {version}\n")
    (info / "top_level.txt").write_text("kernels\n")
    (info / "RECORD").write_text("kernels/__init__.py,,\n")
    # The checkout comes first on the path, as it does for a learner who starts Python in it.
    theirs, ours = run(
        MODEL_CLASSES
        + "import kernels, labllm.kernels.stream as stream; print(kernels.__file__); print(stream.__file__)",
        root,
        root,
        tmp_path,
    ).splitlines()
    assert Path(theirs) == tmp_path / "kernels" / "__init__.py"
    assert Path(ours) == root / "kernels" / "stream.py"


def test_model_classes_import_beside_the_folder(root: Path):
    run(MODEL_CLASSES, root)


def test_editors_are_told_of_every_kernel(root: Path):
    shim = (root / "labllm" / "kernels" / "__init__.py").read_text(encoding="utf-8")
    told = [line.strip() for line in shim.splitlines() if line.startswith("    from kernels import ")]
    names = sorted(kernel.stem for kernel in (root / "kernels").glob("*.py"))
    assert told == [f"from kernels import {name} as {name}" for name in names]


def test_an_unknown_kernel_is_an_attribute_error():
    import labllm.kernels

    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        labllm.kernels.nothing  # noqa: B018


def test_the_interpreter_is_chosen_before_triton_is_imported(tmp_path: Path):
    code = "from labllm.hardware import interpreting; import labllm.kernels, os, sys; "
    code += "print(interpreting() == (os.environ.get('TRITON_INTERPRET') == '1'), 'triton' in sys.modules)"
    assert run(code, tmp_path) == "True False"


@pytest.mark.skipif(not interpreting(), reason="Triton compiles here, so the order of imports does not matter")
def test_triton_imported_too_early_is_explained(tmp_path: Path):
    code = "import triton\ntry: import labllm.kernels\nexcept RuntimeError as error: print(error)"
    assert "import labllm.hardware before transformers or triton" in run(code, tmp_path)
