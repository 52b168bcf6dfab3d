"""How many pieces of work a call hands to the device: what fusion and graphs reduce.

On a GPU torch's profiler sees both sides: launches are calls of the host (a replayed graph is one), kernels are what
the device then runs. On a CPU there is nothing to launch, and operators stand in for it: those of torch that compute,
views and allocations not counted. Cost: a profile, some milliseconds; so a ladder counts where nothing is timed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from labllm.models.profiling import MEANING, meaning, operators

HOST_CALLS = {
    "cudaLaunchKernel",
    "cudaLaunchKernelExC",
    "cuLaunchKernel",
    "cuLaunchKernelEx",
    "cudaGraphLaunch",
    "cudaMemcpyAsync",
    "cudaMemsetAsync",
}
CALL_OTHERS = {  # operators whose work is done by another that they call, which is counted
    f"aten::{name}"
    for name in (
        "linear",
        "matmul",
        "rms_norm",
        "scaled_dot_product_attention",
        "to",
        "_to_copy",
        "clone",
        "contiguous",
    )
}
MOVES_NOTHING = [words for words in MEANING if words.startswith(("a new view", "makes room"))]


def count(call: Callable[[], Any], device: str) -> Mapping[str, int]:
    """{'launches': n, 'kernels': n} of one `call` on a GPU, {'operators': n} on a CPU; `call` runs twice."""
    if torch.device(device).type != "cuda":
        computing = [o for o in operators(call, device) if o.name not in CALL_OTHERS]
        return {"operators": sum(o.calls for o in computing if meaning(o.name) not in MOVES_NOTHING)}
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")
    with torch.inference_mode():
        call()
        torch.cuda.synchronize()
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], acc_events=True) as seen:
            call()
            torch.cuda.synchronize()
    events = seen.events() or []
    return {
        "launches": sum(event.name in HOST_CALLS for event in events),
        "kernels": sum(event.device_type == DeviceType.CUDA for event in events),
    }
