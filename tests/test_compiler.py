"""Whether a compiler of CUDA can be used is found out by asking it, and said in a sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from labllm import compiler, hardware
from labllm.hardware import can


def pretended(folder: Path, script: str) -> str:
    """A program that stands for nvcc."""
    path = folder / "nvcc"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


VERSION = 'if [ "$1" = --version ]; then echo "Cuda compilation tools, release 13.0, V13.0.88"; fi'


def test_a_compiler_that_works_is_no_trouble(tmp_path: Path) -> None:
    assert compiler.trouble(pretended(tmp_path, VERSION), None) == ""


def test_what_it_complains_about_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = pretended(tmp_path, 'echo "nvcc fatal   : Failed to preprocess host compiler properties." >&2; exit 1')
    assert compiler.trouble(path, None) == "nvcc fatal   : Failed to preprocess host compiler properties."
    monkeypatch.setattr(hardware, "nvcc", lambda: path)
    answer = can("nvcc", "cpu")
    assert not answer and answer.reason.startswith("nvcc cannot be used: nvcc fatal")
    assert compiler.trouble(pretended(tmp_path, "exit 3"), (8, 0)) == "it refuses an empty kernel"


def test_a_file_that_is_no_program(tmp_path: Path) -> None:
    path = tmp_path / "nvcc"
    path.write_text("")
    assert compiler.trouble(str(path), None).startswith("it does not run: ")


@pytest.mark.parametrize(("driver", "usable"), [(12, False), (13, True), (14, True), (None, True)])
def test_a_toolkit_newer_than_the_driver(
    driver: int | None, usable: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiler, "driver_release", lambda: driver)
    said = compiler.trouble(pretended(tmp_path, VERSION), (9, 0))
    assert bool(said) is not usable and (usable or "CUDA 13, the driver of CUDA 12" in said)


def test_a_gpu_is_asked_for_by_its_own_architecture(tmp_path: Path) -> None:
    path = pretended(tmp_path, f'{VERSION}; case "$1" in -arch=sm_90a|--version) ;; *) exit 1 ;; esac')
    assert compiler.trouble(path, (9, 0)) == "" and compiler.trouble(path, (8, 0)) != ""
