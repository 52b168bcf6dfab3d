"""The questions `doctor` asks of a machine, each with the one command that mends a no.

Every question is a function that returns a Finding; it looks and changes nothing but a probe file in the learner's
folder. `blocks` says that no lab can run without it; the rest is worth knowing.
"""

from __future__ import annotations

import platform
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from labllm.attention.flash.tiles import smaller_than_recorded
from labllm.hardware import default_device, free_memory, this_machine, triton_mode
from labllm.home import home
from labllm.parallel.topology import here

LIBRARIES = ("transformers", "jupyterlab", "ipykernel", "ipywidgets", "matplotlib")
TESTED_PAIRS = {("2.13.0", "3.7.1"): "the pair tested on CPUs", ("2.11.0", "3.6.0"): "the pair behind the GPU records"}
INSTALL = "pip install -e '.[lab]'"
MEMORY, DISK = 2 * 2**30, 2**29
TRITON_WORDS = {
    "compiled": "kernels are compiled and timed",
    "interpreted": "kernels run in the interpreter: checked, never timed",
    "refused": "this GPU is too old for Triton (it needs capability 8.0): torch rungs stand in",
    "absent": "not available here (it needs Linux): rungs that need it say so",
}


@dataclass(frozen=True)
class Finding:
    """What was asked, whether all is well, what was found, how to mend it; `blocks`: no lab runs without it."""

    name: str
    ok: bool
    found: str
    mend: str = ""
    blocks: bool = False

    @property
    def word(self) -> str:
        return "ok" if self.ok else "missing" if self.blocks else "note"


def examine() -> list[Finding]:
    """All findings; a question that raises is itself a finding."""
    questions: list[Callable[[], Finding]] = [_python, _torch, _device, _ranks, _triton]
    questions += [lambda name=name: _library(name) for name in LIBRARIES]
    questions += [_memory, _disk, _home, _pico, _chromium]
    return [_asked(question) for question in questions]


def _asked(question: Callable[[], Finding]) -> Finding:
    try:
        return question()
    except Exception as error:
        name = getattr(question, "__name__", "library").strip("_")
        return Finding(name, False, f"{type(error).__name__}: {error}", INSTALL, blocks=True)


def _python() -> Finding:
    version, wanted = platform.python_version(), SpecifierSet(metadata.metadata("labllm")["Requires-Python"])
    ok = wanted.contains(version, prereleases=True)
    return Finding("Python", ok, f"{version}, {sys.executable}", f"make lab PYTHON=python3.12  # {wanted}", blocks=True)


def _torch() -> Finding:
    import torch

    triton = _version("triton") or "none"
    pair = torch.__version__.split("+")[0], triton.split("+")[0]
    others = "; ".join(f"{t} with triton {k} is {words}" for (t, k), words in TESTED_PAIRS.items())
    said = TESTED_PAIRS.get(pair, f"not a tested pair ({others})")
    return Finding("torch", True, f"{torch.__version__} with triton {triton}: {said}")


def _device() -> Finding:
    machine = this_machine(default_device())
    known = f"datasheet known ({machine.spec.name})" if machine.spec else "no datasheet: only measured ceilings"
    return Finding("device", True, f"{machine.name}, {machine.memory / 2**30:.0f} GiB; {known}")


def _ranks() -> Finding:
    cores = this_machine("cpu").cores
    found = f"{linked}: ranks talk through NCCL" if (linked := here()) else f"up to {cores} on the CPU, through gloo"
    return Finding("ranks", True, found)


def _triton() -> Finding:
    mode = triton_mode(default_device())
    shrunk = smaller_than_recorded(this_machine(default_device())) if mode == "compiled" else None
    words = f"{mode}: {TRITON_WORDS[mode]}" + (f"; {shrunk}" if shrunk else "")
    return Finding("triton", mode in ("compiled", "interpreted"), words)


def _library(name: str) -> Finding:
    wanted, found = _wanted(name), _version(name)
    ok = found is not None and wanted.contains(found, prereleases=True)
    words = found if found and ok else f"{found or 'not installed'}; the labs need {wanted}"
    return Finding(name, ok, words, f"pip install '{name}{wanted}'", blocks=True)


def _memory() -> Finding:
    free = free_memory("cpu")
    words = f"{free / 2**30:.1f} GiB free; the labs need {MEMORY / 2**30:.0f}"
    return Finding("memory", free >= MEMORY, words, "close other programs", blocks=True)


def _disk() -> Finding:
    free = shutil.disk_usage(home()).free
    words = f"{free / 2**30:.1f} GiB free beside the learner's folder"
    return Finding("disk", free >= DISK, words, "free some disk, or set LABLLM_HOME to a folder elsewhere")


def _home() -> Finding:
    mend = "export LABLLM_HOME=some/folder/you/can/write"
    try:
        folder = home()
        with tempfile.TemporaryFile(dir=folder):
            return Finding("LABLLM_HOME", True, f"{folder} can be written")
    except OSError as error:
        return Finding("LABLLM_HOME", False, f"cannot be written, so progress is not kept ({error})", mend)


def _chromium() -> Finding:
    found = next(filter(None, map(shutil.which, ("chromium", "google-chrome", "chromium-browser"))), None)
    return Finding("chromium", found is not None, found or "not found; only the browser tests need it", "make browser")


def _pico() -> Finding:
    from labllm.models.pico import pico

    mend = "git restore labllm/models/pico/weights"
    try:
        count = sum(p.numel() for p in pico("cpu").parameters())
    except (ValueError, OSError) as error:
        return Finding("pico", False, str(error), mend, blocks=True)
    return Finding("pico", True, f"the shipped model loads: {count / 1e6:.1f} million parameters", mend, blocks=True)


def _wanted(package: str) -> SpecifierSet:
    """The versions that labllm's own metadata asks for: pyproject.toml is the one place that says them."""
    requirements = map(Requirement, metadata.requires("labllm") or [])
    return next(r.specifier for r in requirements if r.name == package)


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
