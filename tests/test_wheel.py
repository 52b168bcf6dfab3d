"""What is packed: the wheel holds `labllm` and nothing else at its top, with kernels, records and weights inside."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def dist(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist and the wheel built from it."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(root)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return folder


@pytest.fixture(scope="module")
def wheel(dist: Path) -> zipfile.ZipFile:
    return zipfile.ZipFile(next(dist.glob("*.whl")))


def test_top_level_is_labllm_only(wheel: zipfile.ZipFile):
    tops = {name.split("/")[0] for name in wheel.namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"labllm"}


def test_every_source_and_data_file_is_packed(wheel: zipfile.ZipFile, root: Path):
    listed = subprocess.run(
        ["git", "ls-files", "labllm", "kernels"], cwd=root, capture_output=True, text=True, check=True
    ).stdout.split()
    expected = {f"labllm/{name}" if name.startswith("kernels/") else name for name in listed if (root / name).exists()}
    assert expected - set(wheel.namelist()) == set()


def test_nothing_else_is_packed(dist: Path, wheel: zipfile.ZipFile):
    with tarfile.open(next(dist.glob("*.tar.gz"))) as sdist:
        names = [*wheel.namelist(), *sdist.getnames()]
    assert [name for name in names if "__pycache__" in name or "/.venv/" in name or "/work/" in name] == []


def test_command_and_licence(wheel: zipfile.ZipFile):
    info = next(name.split("/")[0] for name in wheel.namelist() if ".dist-info/" in name)
    assert b"labllm = labllm.cli:app" in wheel.read(f"{info}/entry_points.txt")
    assert b"MIT License" in wheel.read(f"{info}/licenses/LICENSE")


@pytest.mark.parametrize("where", ["elsewhere", "tests"])
def test_installed_wheel_has_its_own_kernels(where: str, wheel: zipfile.ZipFile, root: Path, tmp_path: Path):
    site = tmp_path / "site-packages"
    wheel.extractall(site)
    ran = subprocess.run(
        [sys.executable, "-c", "import labllm.kernels.stream as stream; print(stream.__file__)"],
        cwd=root / "tests" if where == "tests" else tmp_path,
        env=os.environ | {"PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert Path(ran.stdout.strip()) == site / "labllm" / "kernels" / "stream.py"
