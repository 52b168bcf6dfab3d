"""The one path from a ladder to records: run every rung, check its answer, time it and place it on the roof.

Nothing is timed before its answer was right. A rung that cannot run here, needs more memory than there is, answers
wrongly or raises becomes a record that says so, and the others go on. Records are yielded one by one, so that a
caller can draw partial results and stop between rungs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from labllm.bench.case import Case
from labllm.bench.ladder import Ladder
from labllm.bench.record import Record
from labllm.bench.roof import Roof
from labllm.hardware import default_device


def measure(
    ladder: Ladder,
    workload: Any,
    *,
    device: str | None = None,
    seed: int = 0,
    roof: Roof | None = None,
    memory_limit: float | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> Iterator[Record]:
    """Yield a Record for each rung of `ladder` on `workload`, in the ladder's order.

    roof          the ceilings measured in this process (`bench.ceilings`), for the share of the ceiling
    memory_limit  bytes of device memory to stay under, besides what is free
    stop          asked between rungs; once it says True the rest is recorded as cancelled
    """
    case = Case(ladder, workload, device or default_device(), seed, roof, memory_limit)
    for rung in ladder.rungs:
        yield case.cancelled(rung) if stop() else case.record(rung)
