"""The pace of a stream: how long each of its items took to arrive.

For generated tokens the first figure is the time to first token (TTFT), the others are the inter-token latencies (ITL).
Only the wait for an item counts, not what its reader does with it. It is a look at one run, with whatever else the
machine was doing; `measure` is for figures that are to be compared and kept.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

import torch

Item = TypeVar("Item")


def pace(items: Iterable[Item], device: str = "cpu") -> Iterator[tuple[Item, float]]:
    """Yield each item with the seconds that it took to come, work on `device` included."""
    gpu = torch.device(device).type == "cuda"
    waiting = iter(items)
    while True:
        start = time.perf_counter()
        try:
            item = next(waiting)
        except StopIteration:
            return
        if gpu:
            torch.cuda.synchronize()
        yield item, time.perf_counter() - start


def typical_pace(make: Callable[[], Iterable[object]], runs: int = 3, device: str = "cpu") -> list[float]:
    """Seconds of each item: the median over several runs of a fresh `make()`, after one run to warm up.

    Raises ValueError where the runs yield different numbers of items.
    """
    every = [[seconds for _, seconds in pace(make(), device)] for _ in range(runs + 1)][1:]
    if len({len(run) for run in every}) > 1:
        raise ValueError(f"each run must yield as many items as the others, got {[len(run) for run in every]}")
    return [statistics.median(column) for column in zip(*every, strict=True)]
