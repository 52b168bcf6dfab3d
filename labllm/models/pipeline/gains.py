"""What a pipeline gained over one device, from records, beside p m / (m + p - 1).

Invariant: a gain is of two rungs on one workload: the same micro-batches, the same machine.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any, NamedTuple

from labllm.bench import Record
from labllm.models.pipeline.ladder import ALONE, PIPELINE
from labllm.models.pipeline.workload import Pipelined
from labllm.parallel.schedules import SCHEDULES, speedup


class Gain(NamedTuple):
    """Of one schedule on one workload: times as fast as one device, and by the formula of fill-drain."""

    schedule: str
    workload: Pipelined
    gain: float
    formula: float
    bubble: float | None

    @property
    def setting(self) -> dict[str, Any]:
        """The workload's fields but for the number of micro-batches."""
        return {name: value for name, value in asdict(self.workload).items() if name != "micro_batches"}

    @property
    def row(self) -> dict[str, Any]:
        """As a row of a table."""
        told = {"micro-batches": float(self.workload.micro_batches), "schedule": self.schedule}
        measured = {"gain (x)": self.gain, "p m / (m + p - 1) (x)": self.formula}
        return told | measured | {"bubble (%)": None if self.bubble is None else 100 * self.bubble}


def gains(records: Iterable[Record]) -> list[Gain]:
    """By schedule and number of micro-batches, of the machine and setting with the most of them."""
    settings: dict[Any, dict[int, dict[str, Record]]] = defaultdict(lambda: defaultdict(dict))
    for r in records:
        if r.ladder == PIPELINE.name and r.seconds and r.workload["ranks"] > 1:
            others = tuple(sorted((name, value) for name, value in r.workload.items() if name != "micro_batches"))
            settings[r.host.name, others][r.workload["micro_batches"]][r.rung] = r
    whole = [{m: rungs for m, rungs in by_count.items() if ALONE.name in rungs} for by_count in settings.values()]
    best = max(whole, key=len, default={})
    return [
        _gain(rungs[ALONE.name], rungs[name])
        for name in SCHEDULES
        for _, rungs in sorted(best.items())
        if name in rungs
    ]


def _gain(alone: Record, piped: Record) -> Gain:
    w = Pipelined(**piped.workload)
    idle = piped.metrics.get("bubble")
    gain = (alone.seconds or 0.0) / (piped.seconds or 1.0)
    return Gain(piped.rung, w, gain, speedup(w.stages, w.micro_batches), idle.value if idle else None)
