"""SteadyClock: calls that follow one another, launches included, as the steps of a decode do.

Between two events lie many calls, and their time is divided: where the host launches faster than the device runs, this
is the device's time; where it does not, the host's. An event pair about a single call would add the wait for its first
kernel, and a graph about all of them would hide the host, which is what such a ladder is about. On a CPU: the
monotonic clock about single calls.

Invariant: nothing is flushed, so what fits the last-level cache stays there from call to call.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from labllm.bench.clock import WALL, Timing, wall

STEADY = "cuda events about calls in a row, launches included"


@dataclass(frozen=True)
class SteadyClock:
    """A `Clock` that takes `samples` samples of `calls` calls each, fewer where they would exceed `budget` seconds."""

    budget: float = 0.3
    samples: int = 15
    calls: int = 20

    def time(
        self, run: Callable[[Any], Any], make_state: Callable[[int], Any], device: str, *, touched: float
    ) -> Timing:
        """As `Clock.time`; one state, since calls follow one another on the same data."""
        state = make_state(0)
        run(state)
        once = wall(lambda: run(state), device)
        if torch.device(device).type != "cuda":
            count = max(3, min(self.samples * self.calls, int(self.budget / max(once, 1e-6))))
            return Timing(tuple(wall(lambda: run(state), device) for _ in range(count)), WALL)
        calls = max(1, min(self.calls, int(self.budget / (3 * once))))
        count = max(3, min(self.samples, int(self.budget / (calls * once))))
        return Timing(tuple(_row(run, state, calls) for _ in range(count)), STEADY)


def _row(run: Callable[[Any], Any], state: Any, calls: int) -> float:
    """Seconds a call of `calls` calls in a row."""
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    run(state)
    torch.cuda.synchronize()
    start.record()
    for _ in range(calls):
        run(state)
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / 1e3 / calls
