"""What this machine is and what it can do. It asks and never times.

`this_machine(device)` describes the processor or GPU; `can(need, device)` answers a capability question with a reason
that a learner can act on; `triton_mode(device)` says how Triton kernels run here. Decisions come from what the device
reports (capability, shared memory), never from its name: the name only finds the datasheet row.

Importing this module chooses Triton's interpreter where Triton cannot compile: that must happen before anything
imports Triton, and torch itself does so on its first operator under a dispatch mode.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import platform
import shutil
from dataclasses import dataclass
from pathlib import Path

import psutil
import torch

from labllm.compiler import trouble
from labllm.devices import DeviceSpec, spec_of

TRITON_CAPABILITY = (8, 0)
EARLY_START = (9, 0)  # from here on a kernel can start before the one in front of it has ended


@dataclass(frozen=True)
class Machine:
    """One device of this machine: bytes of memory, of last-level cache and of shared memory a block (0 on a CPU)."""

    name: str
    kind: str  # "cuda" or "cpu"
    memory: int
    cores: int
    cache: int
    shared_memory: int
    capability: tuple[int, int] | None
    spec: DeviceSpec | None

    @property
    def slug(self) -> str:
        """A file-name form of the name: 'NVIDIA H200' -> 'nvidia-h200'."""
        return slug(self.name)


@dataclass(frozen=True)
class Answer:
    """A yes, or a no with the reason and what would help."""

    ok: bool
    reason: str = ""

    def __bool__(self) -> bool:
        return self.ok


def slug(name: str) -> str:
    """Lower case, words joined by hyphens, nothing but letters and digits: what a file name may hold."""
    return "-".join("".join(c if c.isalnum() else " " for c in name.lower()).split())


def default_device() -> str:
    """'cuda' where a CUDA device answers, else 'cpu'."""
    return "cuda" if torch.cuda.is_available() else "cpu"


@functools.cache
def this_machine(device: str | None = None) -> Machine:
    """Describe `device` ('cuda' or 'cpu'; default: `default_device()`)."""
    kind = torch.device(device or default_device()).type
    if kind == "cuda":
        p = torch.cuda.get_device_properties(0)
        return Machine(
            p.name,
            kind,
            p.total_memory,
            p.multi_processor_count,
            p.L2_cache_size,
            p.shared_memory_per_block_optin,
            (p.major, p.minor),
            spec_of(p.name, p.total_memory),
        )
    if kind != "cpu":
        raise ValueError(f"device must be 'cuda' or 'cpu', got {kind!r}")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)
    return Machine(
        f"{_cpu_name()}, {cores} cores", kind, psutil.virtual_memory().total, cores, _cpu_cache(), 0, None, None
    )


def free_memory(device: str) -> int:
    """Bytes that a new allocation on `device` could take now."""
    if torch.device(device).type == "cuda":
        cached = torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
        return torch.cuda.mem_get_info()[0] + cached
    return psutil.virtual_memory().available


def interpreting() -> bool:
    """True where Triton is installed but cannot compile here, so that its kernels must run in the interpreter."""
    return _has_triton() and not _triton_compiles()


def triton_mode(device: str | None = None) -> str:
    """How Triton kernels run on tensors of `device`: 'compiled', 'interpreted', 'refused' (GPU too old) or 'absent'."""
    if not _has_triton():
        return "absent"
    if torch.device(device or default_device()).type == "cuda":
        return "compiled" if _triton_compiles() else "refused"
    return "interpreted" if interpreting() or os.environ.get("TRITON_INTERPRET") == "1" else "absent"


@functools.cache
def can_start_early(device: str | None = None) -> bool:
    """Whether a Triton kernel on `device` may start while the one before it runs (kernels/early_start.py)."""
    capability = this_machine(device).capability
    return triton_mode(device) == "compiled" and capability is not None and capability >= EARLY_START


def nvcc() -> str | None:
    """Path of CUDA's compiler: on the PATH, in $CUDA_HOME or in /usr/local/cuda; None where there is none."""
    return _nvcc_on(os.environ.get("PATH"), os.environ.get("CUDA_HOME"))


@functools.cache  # a kernel that is built on first use asks at every call
def _nvcc_on(path: str | None, cuda_home: str | None) -> str | None:
    folders = [Path(root, "bin") for root in (cuda_home, "/usr/local/cuda") if root]
    return shutil.which("nvcc", path=path) or next(
        (found for folder in folders if (found := shutil.which("nvcc", path=folder))), None
    )


def can(need: str, device: str | None = None) -> Answer:
    """Answer a capability question for `device`: 'cuda', 'triton', 'triton-compiled', 'bf16', 'fp8' or 'nvcc'.

    'triton' is also met by the interpreter, where results count and times do not.
    """
    device = device or default_device()
    if need not in _QUESTIONS:
        raise ValueError(f"unknown need {need!r}: known are {', '.join(sorted(_QUESTIONS))}")
    return _QUESTIONS[need](device)


def _cuda(device: str) -> Answer:
    if torch.device(device).type == "cuda" and torch.cuda.is_available():
        return Answer(True)
    return Answer(False, "it needs an NVIDIA GPU; recorded curves stand in for it here")


def _triton(device: str) -> Answer:
    mode = triton_mode(device)
    if mode in ("compiled", "interpreted"):
        return Answer(True)
    if mode == "refused":
        return Answer(False, "Triton needs compute capability 8.0 or newer; torch rungs stand in on this GPU")
    return Answer(False, "Triton is not available for this device: it needs Linux and, for a timing, an NVIDIA GPU")


def _triton_compiled(device: str) -> Answer:
    if triton_mode(device) == "compiled":
        return Answer(True)
    if triton_mode(device) == "interpreted":
        return Answer(False, "Triton runs in its interpreter here, which checks results but is never timed")
    return _triton(device)


def _bf16(device: str) -> Answer:
    capability = this_machine(device).capability
    if capability is None or capability >= (8, 0):
        return Answer(True)
    return Answer(False, "bfloat16 needs compute capability 8.0 or newer; choose float16")


def _fp8(device: str) -> Answer:
    capability = this_machine(device).capability
    if capability is not None and capability >= (8, 9):
        return Answer(True)
    return Answer(False, "FP8 arithmetic needs a GPU of compute capability 8.9 or newer")


def _nvcc(device: str) -> Answer:
    if path := nvcc():
        reason = trouble(path, this_machine(device).capability)
        return Answer(False, f"nvcc cannot be used: {reason}") if reason else Answer(True)
    return Answer(False, "nvcc is not on the PATH and not in CUDA_HOME; install the CUDA toolkit to compile CUDA C++")


_QUESTIONS = {
    "cuda": _cuda,
    "triton": _triton,
    "triton-compiled": _triton_compiled,
    "bf16": _bf16,
    "fp8": _fp8,
    "nvcc": _nvcc,
}


@functools.cache  # looking through the folders of packages takes longer than a launch
def _has_triton() -> bool:
    return importlib.util.find_spec("triton") is not None


def _triton_compiles() -> bool:
    return torch.cuda.is_available() and torch.cuda.get_device_capability() >= TRITON_CAPABILITY


def _cpu_cache() -> int:
    """Bytes of the largest cache of the first core where the system tells, else 0."""
    units = {"K": 2**10, "M": 2**20, "G": 2**30}
    told = (file.read_text().strip() for file in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"))
    return max((int(size[:-1]) * units[size[-1]] for size in told if size[-1:] in units), default=0)


def _cpu_name() -> str:
    try:
        with open("/proc/cpuinfo") as info:
            names = [line.split(":", 1)[1].strip() for line in info if line.startswith("model name")]
        return " ".join(names[0].split()) if names else platform.machine()
    except OSError:
        return platform.processor() or platform.machine()


if interpreting():
    os.environ.setdefault("TRITON_INTERPRET", "1")
