"""From a .cu file to machine code: nvcc once, the result kept, the compiler's own account of it read.

`build("gemm_wmma", "sm_90a", bfloat16=True)` compiles kernels/cuda/gemm_wmma.cu to a cubin, which is machine code for
one architecture, in `$LABLLM_HOME/cuda`. The file's name holds a hash of the source, of all that it includes, of the
compiler's version and of the options: what was built is found again, what changed is built anew. No GPU is needed.

Cost: a few seconds a file, once, and after that the time of change of each source, looked up at every call. Invariant:
a file in the cache is whole, since it is renamed into place.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import labllm.kernels
from labllm import hardware
from labllm.bench import CannotRun
from labllm.cuda.resources import Resources, resources
from labllm.home import home

OPTIONS = ("-std=c++17", "-O3", "-cubin", "-Xptxas", "-v")
LIMIT = 180  # seconds that one file may take


class CompileError(RuntimeError):
    """nvcc refused a source; the message holds its first complaints, with file and line."""


@dataclass(frozen=True)
class Built:
    """A cubin, and what the kernel in it takes of a multiprocessor."""

    cubin: Path
    resources: Resources


def source(name: str) -> Path:
    """The file kernels/cuda/`name`.cu; ValueError where there is none, with those that there are."""
    folders = [Path(folder, "cuda") for folder in labllm.kernels.__path__]
    for folder in folders:
        if (folder / f"{name}.cu").is_file():
            return folder / f"{name}.cu"
    known = sorted({file.stem for folder in folders for file in folder.glob("*.cu")})
    raise ValueError(f"there is no kernels/cuda/{name}.cu; known are {', '.join(known)}")


def with_includes(file: Path) -> tuple[Path, ...]:
    """`file` and the headers beside it that it includes, directly or through others, each once."""
    found: list[Path] = []
    waiting = [file]
    while waiting:
        path = waiting.pop(0)
        if path not in found:
            found.append(path)
            waiting += _included(path, _changed(path))
    return tuple(found)


def build(name: str, architecture: str, *, bfloat16: bool = True, **defines: int) -> Built:
    """Compile kernels/cuda/`name`.cu for `architecture` ('sm_75', 'sm_80', 'sm_90a' ...), or find it compiled.

    defines     macros that the file takes, such as PIECES=2
    Raises CannotRun where there is no nvcc, CompileError where it refuses, ValueError for a name that is unknown.
    """
    file = source(name)
    compiler = hardware.nvcc()
    if compiler is None:
        raise CannotRun(hardware.can("nvcc").reason)
    options = (
        *OPTIONS,
        *_target(architecture),
        *(f"-D{k}={v}" for k, v in {"BFLOAT16": int(bfloat16), **defines}.items()),
    )
    sources = tuple((path, _changed(path)) for path in with_includes(file))
    return _found_or_built(compiler, options, sources, home() / "cuda" / f"{name}-{architecture}")


@functools.cache
def _found_or_built(compiler: str, options: tuple[str, ...], sources: tuple[tuple[Path, int], ...], to: Path) -> Built:
    """sources: the file and what it includes, each with its time of change; to: path and beginning of the name."""
    texts = [_text(path) for path, _ in sources]
    digest = hashlib.sha256("\n".join([_version(compiler), *options, *texts]).encode()).hexdigest()[:16]
    cubin = to.with_name(f"{to.name}-{digest}.cubin")
    report = cubin.with_suffix(".txt")
    if not (cubin.is_file() and report.is_file()):
        _compile(compiler, options, sources[0][0], cubin, report)
    return Built(cubin, resources(_text(report)))


def _compile(compiler: str, options: tuple[str, ...], file: Path, cubin: Path, report: Path) -> None:
    cubin.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cubin.parent) as scratch:
        made = Path(scratch, "made")
        try:
            ran = subprocess.run(
                [compiler, *options, "-o", str(made), str(file)], capture_output=True, text=True, timeout=LIMIT
            )
        except subprocess.TimeoutExpired as late:
            raise CompileError(f"nvcc worked on {file.name} for more than {LIMIT} s and was stopped") from late
        if ran.returncode:
            raise CompileError(f"nvcc could not compile {file.name}: {complaints(ran.stderr + ran.stdout)}")
        written = made.with_suffix(".txt")
        written.write_text(ran.stderr + ran.stdout, encoding="utf-8")
        os.replace(written, report)
        os.replace(made, cubin)


def complaints(output: str, most: int = 3) -> str:
    """The first errors in a compiler's output, file names without their folders; its last line where none is named."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if re.search(r"\b(error|fatal)\b", line)] or lines[-1:]
    return "; ".join(re.sub(r"\S*/(\S+?)\(", r"\1(", line) for line in errors[:most]) or "it gave no reason"


def _target(architecture: str) -> tuple[str, ...]:
    if not re.fullmatch(r"sm_\d+[af]?", architecture):
        raise ValueError(f"an architecture is written like 'sm_80' or 'sm_90a', got {architecture!r}")
    return (f"-gencode=arch={architecture.replace('sm_', 'compute_')},code={architecture}",)


@functools.cache
def _included(path: Path, changed: int) -> list[Path]:
    """The headers beside `path` that it names, as of that time of change."""
    return [path.parent / name for name in re.findall(r'^#include "(.+)"', _text(path), re.MULTILINE)]


def _changed(path: Path) -> int:
    return path.stat().st_mtime_ns


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@functools.cache
def _version(compiler: str) -> str:
    return subprocess.run([compiler, "--version"], capture_output=True, text=True, check=False).stdout
