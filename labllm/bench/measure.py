"""The one path from a ladder to records: run every rung, check its answer, time it and place it on the roof.

Nothing is timed before its answer was right. A rung that cannot run here, needs more memory than there is, answers
wrongly or raises becomes a record that says so, and the others go on. Records are yielded one by one, so that a
caller can draw partial results and stop between rungs.
"""

from __future__ import annotations

import functools
import gc
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar

import torch

from labllm.bench.clock import Timing
from labllm.bench.fingerprint import source_hash, versions
from labllm.bench.ladder import CannotRun, Ladder, Rung
from labllm.bench.memory import peak_bytes
from labllm.bench.poison import Poisoned
from labllm.bench.record import Host, Metric, Record, Spread, Work
from labllm.bench.roof import Roof
from labllm.bench.workload import as_dict
from labllm.hardware import can, default_device, free_memory, this_machine, triton_mode
from labllm.roofline import Cost

INTERPRETER_LIMIT = Cost(flops=2e8, bytes=2e7)
INTERPRETED = "Triton's interpreter: checked, never timed"
Outcome = TypeVar("Outcome")


@dataclass(frozen=True)
class _Trial:
    """A rung whose answer was right, and what the check found.

    The answer itself is kept only where the ladder's metrics ask for it: it may be large, and others run meanwhile.
    """

    rung: Rung
    facts: dict[str, Any]
    metrics: dict[str, Metric]
    out: Any


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
    case = _Case(ladder, workload, device or default_device(), seed, roof, memory_limit)
    for rung in ladder.rungs:
        yield case.cancelled(rung) if stop() else case.record(rung)


@dataclass(frozen=True)
class _Case:
    ladder: Ladder
    workload: Any
    device: str
    seed: int
    roof: Roof | None
    memory_limit: float | None

    @property
    def dtype(self) -> str:
        return getattr(self.workload, "dtype", "float32")

    def state(self, rung: Rung, seed: int) -> Any:
        return rung.prepare(self.ladder.inputs(self.workload, self.device, seed))

    def cancelled(self, rung: Rung) -> Record:
        return self._record(rung, "cancelled", "stopped before it ran")

    def record(self, rung: Rung) -> Record:
        """Check one rung and, where its answer is right, time it."""
        trial = self._attempt(rung)
        return self._timed(trial) if isinstance(trial, _Trial) else trial

    def _attempt(self, rung: Rung) -> _Trial | Record:
        if reason := self._impossible(rung):
            return self._record(rung, "cannot run here", reason)
        if reason := self._too_big(rung):
            return self._record(rung, "out of memory", reason)
        return self._survive(rung, lambda: self._check(rung))

    def _timed(self, trial: _Trial) -> Record:
        if self._interpreted(trial.rung):
            return self._record(trial.rung, "ok", INTERPRETED, method=INTERPRETED, metrics=trial.metrics, **trial.facts)
        return self._survive(trial.rung, lambda: self._placed(trial, self._timing(trial.rung)), **trial.facts)

    def _survive(self, rung: Rung, work: Callable[[], Outcome], **facts: Any) -> Outcome | Record:
        """What `work` returns in inference mode, or the record that says how it failed, with the `facts` so far."""
        try:
            with torch.inference_mode():
                return work()
        except CannotRun as error:
            return self._record(rung, "cannot run here", str(error), **facts)
        except (torch.OutOfMemoryError, MemoryError) as error:
            return self._record(rung, "out of memory", str(error).split("\n")[0], **facts)
        except Exception as error:  # a rung is anybody's code: whatever it raises becomes its record
            return self._record(rung, "failed", f"{type(error).__name__}: {error}".split("\n")[0], **facts)
        finally:
            self._sweep()

    def _timing(self, rung: Rung) -> Timing:
        touched = self.ladder.cost(self.workload).bytes
        return self.ladder.clock.time(
            rung.run, lambda more: self.state(rung, self.seed + more), self.device, touched=touched
        )

    def _check(self, rung: Rung) -> _Trial | Record:
        inputs = self.ladder.inputs(self.workload, self.device, self.seed)
        state = self.state(rung, self.seed) if rung.in_place else rung.prepare(inputs)
        peak = peak_bytes(lambda: rung.run(state), self.device)[1]
        state = self.state(rung, self.seed) if rung.in_place else state
        with Poisoned():
            out = rung.run(state)
        metrics: dict[str, Metric] = {}
        if rung.own_reference is not None:
            own = rung.own_reference
            verdict = self.ladder.compare(out, lambda rows: own(state, rows), self.dtype, self.seed)
            metrics["distance to exact"] = Metric(value=self._distance(inputs, out), unit="relative")
        else:
            verdict = self.ladder.compare(out, lambda rows: self.ladder.reference(inputs, rows), self.dtype, self.seed)
        facts = {"error": verdict.error, "tolerance": verdict.tolerance, "peak_bytes": float(peak)}
        if not verdict.ok:
            return self._record(rung, "wrong", verdict.reason, **_finite(facts))
        return _Trial(rung, facts, metrics, out if self.ladder.metrics else None)

    def _distance(self, inputs: Any, out: Any) -> float:
        return self.ladder.compare(out, lambda rows: self.ladder.reference(inputs, rows), self.dtype, self.seed).error

    def _impossible(self, rung: Rung) -> str:
        for need in rung.needs:
            if not (answer := can(need, self.device)):
                return answer.reason
        if self._interpreted(rung):
            cost = self.ladder.cost(self.workload)
            if self.dtype == "bfloat16":
                return "Triton's interpreter computes wrong results in bfloat16; choose float16 or float32"
            if cost.flops > INTERPRETER_LIMIT.flops or cost.bytes > INTERPRETER_LIMIT.bytes:
                return "this size is too large for Triton's interpreter; choose a smaller one to check the kernel"
        return rung.refuses(self.workload) or ""

    def _interpreted(self, rung: Rung) -> bool:
        return "triton" in rung.needs and triton_mode(self.device) == "interpreted"

    def _too_big(self, rung: Rung) -> str:
        need = (self.ladder.input_bytes(self.workload) if self.ladder.input_bytes else 0) + (
            rung.memory(self.workload) if rung.memory else 0
        )
        room = free_memory(self.device)
        if self.memory_limit is not None and need > self.memory_limit <= room:
            return f"it needs {need / 1e9:.1f} GB and this run may use {self.memory_limit / 1e9:.1f} GB"
        return f"it needs {need / 1e9:.1f} GB and {room / 1e9:.1f} GB are free" if need > room else ""

    def _placed(self, trial: _Trial, timing: Timing) -> Record:
        spread = Spread.of(timing.samples)
        cost, machine = self.ladder.cost(self.workload), this_machine(self.device)
        shares: dict[str, float] = {}
        flags: list[str] = []
        datasheet = Roof.of_spec(machine.spec) if machine.spec else None
        for name, roof in (("of_datasheet", datasheet), ("of_ceiling", self.roof)):
            floor = roof.seconds(cost, self.dtype) if roof else None
            if roof and floor is not None:
                shares[name] = floor / spread.median
                if shares[name] > 1:
                    flags.append(_above(roof, cost, machine.cache))
        metrics = dict(trial.metrics)
        if self.ladder.metrics:
            further = self.ladder.metrics(self.workload, trial.out, spread.median)
            metrics |= {name: Metric(value=value, unit=unit) for name, (value, unit) in further.items()}
        facts = shares | trial.facts | {"flags": tuple(flags), "metrics": metrics}
        return self._record(trial.rung, "ok", time=spread, method=timing.method, **facts)

    def _record(self, rung: Rung, status: str, reason: str = "", **facts: Any) -> Record:
        cost = self.ladder.cost(self.workload)
        moved = rung.moved(self.workload) if rung.moved else cost
        machine = this_machine(self.device)
        return Record(
            ladder=self.ladder.name,
            rung=rung.name,
            peer=rung.peer,
            workload=as_dict(self.workload),
            status=status,
            reason=reason,
            compulsory=Work(flops=cost.flops, bytes=cost.bytes),
            moved=Work(flops=moved.flops, bytes=moved.bytes),
            host=Host(name=machine.name, kind=machine.kind, versions=versions(), shared=_shared(self.device)),
            date=datetime.now(UTC).date().isoformat(),
            source=source_hash(rung.code),
            **facts,
        )

    def _sweep(self) -> None:
        if self.device != "cpu":
            gc.collect()
            torch.cuda.empty_cache()


def _above(roof: Roof, cost: Cost, cache: int) -> str:
    if cost.bytes < cache:
        return f"above the {roof.source} memory roof: its data may have stayed in the cache"
    return f"above the {roof.source} roof, so that ceiling was wrong"


def _finite(facts: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in facts.items() if value != float("inf")}


@functools.cache
def _shared(device: str) -> bool:
    """True where a process besides this one computes on the GPU."""
    if torch.device(device).type != "cuda":
        return False
    gpu = f"GPU-{torch.cuda.get_device_properties(0).uuid}"
    query = ["nvidia-smi", f"--id={gpu}", "--query-compute-apps=pid", "--format=csv,noheader"]
    try:
        answer = subprocess.run(query, capture_output=True, text=True, timeout=10).stdout
    except (OSError, subprocess.TimeoutExpired):
        return False
    return len(answer.split()) > 1
