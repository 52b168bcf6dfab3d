"""Whether CUDA's compiler makes what runs here: asked once, by compiling an empty kernel.

A compiler may be there and of no use: without a C++ compiler beside it, too old for the GPU, or newer than the driver.
To be told so when the question is asked is better than to fail in the middle of a model's step.

Cost: about a second, once a process and architecture. It finds nothing out about a kernel that is not empty.
"""

from __future__ import annotations

import ctypes
import functools
import re
import subprocess
import sys
import tempfile
from pathlib import Path

PATIENCE = 60  # seconds


@functools.cache
def trouble(compiler: str, capability: tuple[int, int] | None) -> str:
    """Why nothing that nvcc, at the path `compiler`, makes would run on a GPU of `capability`; empty where it would.

    None for the capability: whether it makes anything at all.
    """
    target = []
    if capability is not None:  # with Hopper's own instructions on Hopper
        target = [f"-arch=sm_{capability[0]}{capability[1]}{'a' if capability == (9, 0) else ''}"]
    with tempfile.TemporaryDirectory() as folder:
        probe = Path(folder, "probe.cu")
        probe.write_text('extern "C" __global__ void probe() {}\n', encoding="utf-8")
        try:
            made = _run(compiler, *target, "-cubin", "-o", str(probe.with_suffix(".cubin")), str(probe))
            version = _run(compiler, "--version")
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"it does not run: {error}"
    if made.returncode:
        return ((made.stderr + made.stdout).strip() or "it refuses an empty kernel").splitlines()[0]
    release, driver = re.search(r"release (\d+)\.", version.stdout), driver_release()
    if capability and release and driver and int(release[1]) > driver:
        return f"it is of CUDA {release[1]}, the driver of CUDA {driver}: update the driver or take an older toolkit"
    return ""


def driver_release() -> int | None:
    """The major release of CUDA that the driver is of; None where there is no driver."""
    version = ctypes.c_int()
    try:
        driver = ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
        driver.cuDriverGetVersion(ctypes.byref(version))
    except OSError:
        return None
    return version.value // 1000 or None


def _run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
