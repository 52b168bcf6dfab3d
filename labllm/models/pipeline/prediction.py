"""What a machine of more GPUs would do, from records of two of them: fitted first, measured afterwards.

The line of an all-reduce and of a send come from messages between two GPUs, the roof from its streams and products,
and how far a real step stays above its floors from whole steps on one GPU. `plan` does the rest. What is assumed, and
so what a measurement would refute: alpha does not grow with the ranks of an all-reduce, a GPU's links carry as much to
many others as to one, and launches shrink with the share of the work.

Invariant: the same records give the same prediction, so whoever keeps them can tell that it came before.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import log2
from statistics import median
from typing import Any, NamedTuple

from labllm.bench import Record
from labllm.bench.recorded import H200, recorded_roof
from labllm.devices import spec_of
from labllm.models.bound import step_bound
from labllm.models.pipeline.ladder import ALONE, PIPELINE
from labllm.models.pipeline.plan import Gpus, Plan, Work, plan
from labllm.models.pipeline.workload import Pipelined
from labllm.models.tensor_parallel.measured import LIBRARY, line
from labllm.parallel.communication import AlphaBeta, fit
from labllm.parallel.schedules import SCHEDULES

SEND = "send"


def gpus_of(
    records: Iterable[Record],
    host: str = H200,
    all_reduce: str = LIBRARY,
    prefill: bool = False,
    batch: int | None = None,
) -> Gpus | None:
    """The GPUs of `host` as its records know them; None where messages, streams or products were not recorded.

    `all_reduce` names the rung of that ladder; `prefill` and `batch`, sequences a micro-batch, say of which steps the
    slowness is: of those recorded nearest to that batch, or of all.
    """
    mine = [r for r in records if r.host.name == host]
    roof, spec = recorded_roof(host, mine), spec_of(host, 0)
    summed, sent = line(mine, rung=all_reduce), _send(mine)
    if roof is None or spec is None or summed is None or sent is None:
        return None
    gpus = Gpus(roof, spec.memory, summed, sent)
    return gpus._replace(slowness=_slowness(mine, gpus, prefill, batch))


def planned(w: Pipelined, gpus: Gpus) -> Plan:
    """The plan of one workload of the pipeline ladder."""
    return plan(
        w.config, w.tensor_parallel, w.stages, gpus, Work(w.batch, w.context, w.micro_batches, w.queries, w.dtype)
    )


def seconds(w: Pipelined, schedule: str, gpus: Gpus) -> float:
    """What the ladder would measure: of all steps, under a schedule of SCHEDULES.

    Raises KeyError for another schedule, ValueError where the model cannot be shared so.
    """
    one = planned(w, gpus)
    return {"fill-drain": w.steps * one.step, "continuous": (w.steps - 1) * one.flow + one.step}[schedule]


class Compared(NamedTuple):
    """A run of the ladder as it was measured, and as the records of two GPUs foretell it."""

    record: Record
    predicted: float

    @property
    def ratio(self) -> float:
        """Measured over predicted: 1 where the model is right, more where something is left out."""
        return (self.record.seconds or 0.0) / self.predicted

    @property
    def row(self) -> dict[str, Any]:
        """As a row of a table."""
        w = Pipelined(**self.record.workload)
        grid = {"model": w.model, "tp": w.tensor_parallel, "pp": w.stages, "micro-batches": w.micro_batches}
        what = {"sequences each": w.batch, "new tokens each": w.queries, "rung": self.record.rung}
        times = {"measured (ms)": 1e3 * (self.record.seconds or 0.0), "predicted (ms)": 1e3 * self.predicted}
        return grid | what | times | {"measured / predicted": self.ratio}


def compared(records: Iterable[Record], host: str = H200) -> list[Compared]:
    """Every timed run of a pipeline on `host` beside its prediction; none where the records give no machine."""
    every, found = list(records), []
    for r in every:
        schedule, _, pushed = r.rung.partition(", ")
        if r.ladder == PIPELINE.name and r.host.name == host and r.seconds and schedule in SCHEDULES:
            w = Pipelined(**r.workload)
            gpus = gpus_of(every, host, pushed or LIBRARY, w.queries > 1, w.batch)
            found += [Compared(r, seconds(w, schedule, gpus))] if gpus else []
    return found


def _send(records: Iterable[Record]) -> AlphaBeta | None:
    times = {
        float(r.workload["size"]): r.seconds
        for r in records
        if r.ladder == SEND and r.seconds and r.workload["ranks"] == 2
    }
    return fit(list(times), list(times.values())) if len(times) > 1 else None


def _slowness(records: Iterable[Record], gpus: Gpus, prefill: bool, batch: int | None) -> float:
    """How many times its floor a step of one GPU took, in the median; 1 where none was recorded."""
    times: dict[int, list[float]] = {}
    for r in records:
        if r.ladder == PIPELINE.name and r.rung == ALONE.name and r.seconds:
            w = Pipelined(**r.workload)
            if (w.queries > 1) == prefill:
                floor = step_bound(w.config, gpus.roof, w.dtype, w.batch, w.queries, w.context).floor()
                times.setdefault(w.batch, []).append(r.seconds / (w.steps * w.micro_batches * floor))
    if batch is not None and times:
        nearest = min(times, key=lambda recorded: abs(log2(recorded / batch)))
        return median(times[nearest])
    return median([ratio for every in times.values() for ratio in every]) if times else 1.0
