"""VirtualClock: for simulated runs, whose answer says itself how long it would have taken.

A simulation that decides and counts but computes nothing has no time of its own worth showing: how fast the simulator
runs says nothing about what it simulates. Its answer carries `seconds`, by a model that its ladder states, and records
say 'clock: virtual'. Invariant: the same workload gives the same seconds on every machine.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from labllm.bench.clock import Timing

VIRTUAL = "clock: virtual"


@dataclass(frozen=True)
class VirtualClock:
    """A `Clock` that believes `out.seconds`."""

    def time(
        self, run: Callable[[Any], Any], make_state: Callable[[int], Any], device: str, *, touched: float
    ) -> Timing:
        return Timing((run(make_state(0)).seconds,), VIRTUAL)
