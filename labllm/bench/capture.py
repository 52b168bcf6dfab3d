"""Capturing a CUDA graph so that a capture that fails leaves nothing behind.

While a graph is captured, torch's random numbers come from offsets that the graph will be given. Where the captured
work asks the device for a value, the capture ends with an error and torch keeps its generators in that mode: every
later `torch.randn(..., device="cuda")` of the process raises. A further capture, which ends well, puts them back.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def capture(graph: torch.cuda.CUDAGraph, pool: tuple[int, int] | None = None) -> Iterator[None]:
    """As `torch.cuda.graph(graph, pool)`: what is launched in the block is recorded, not run. Raises what it raises."""
    try:
        with torch.cuda.graph(graph, pool=pool):
            yield
    except RuntimeError:
        torch.cuda.synchronize()
        _end_well()
        raise


def _end_well() -> None:
    one = torch.ones(1, device="cuda")
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        one.add_(1)
