"""The pace of a stream: how long each of its items took to arrive.

For generated tokens the first figure is the time to first token (TTFT), the others are the inter-token latencies (ITL).
Only the wait for an item counts, not what its reader does with it. It is a look at one run, with whatever else the
machine was doing; `measure` is for figures that are to be compared and kept.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
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


def best_pace(
    ways: Mapping[str, Callable[[], Iterable[object]]], runs: int = 3, device: str = "cpu"
) -> dict[str, list[float]]:
    """Seconds of each item for each way to make the stream: the least over several runs, after one to warm up.

    Interruptions only add, so the least is nearest to what the work itself takes; the runs of all ways alternate, so
    that a busy minute does not fall on one of them. Raises ValueError where runs of one way differ in their length.
    """
    taken: dict[str, list[list[float]]] = {name: [] for name in ways}
    for _ in range(runs + 1):
        for name, make in ways.items():
            taken[name].append([seconds for _, seconds in pace(make(), device)])
    for name, every in taken.items():
        if len({len(run) for run in every}) > 1:
            raise ValueError(f"each run of {name} must yield as many items, got {[len(run) for run in every]}")
    return {name: [min(column) for column in zip(*every[1:], strict=True)] for name, every in taken.items()}
