"""The plain solution of `attainable_time`."""

from __future__ import annotations


def attainable_time(flops: float, bytes_moved: float, peak: float, bandwidth: float) -> tuple[float, str]:
    compute = flops / peak
    memory = bytes_moved / bandwidth
    return max(compute, memory), "compute" if compute > memory else "memory"
