"""Starting early: a kernel's programs come while the kernel before it still runs, and wait on the device.

Between two kernels of a stream lies about a microsecond in which the GPU does nothing: the last programs of one end,
its stores are made visible, and only then are programs of the next sent out. A programmatic dependent launch (NVIDIA,
CUDA C++ Programming Guide, "Programmatic dependent launch and synchronization"; compute capability 9.0) lets a kernel
say when its successor may come:

    gdc_launch_dependents   all programs of this kernel run or have ended: those of the next may take the places left
    gdc_wait                until the kernel before this one has ended and what it stored can be read

What keeps this right among any neighbours: every program waits before its first read of what a kernel wrote and before
its first write, and none ends before. So whoever has waited for this kernel has waited for all before it, and so does a
plain launch, which waits for the whole of the kernel before. Weights are written by no kernel and may be asked for
before the wait.

Cost: two instructions a program. It gains nothing behind a kernel that runs for long: a pause is a microsecond.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def begin(OVERLAP: tl.constexpr):
    """Where OVERLAP, let the next kernel start early, then wait for the one before."""
    if OVERLAP:
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()


def launch_options(overlap: bool) -> dict[str, bool]:
    """What a launch is given besides its arguments."""
    return {"launch_pdl": True} if overlap else {}
