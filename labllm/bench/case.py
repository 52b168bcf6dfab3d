"""A case: one ladder on one workload here. It checks a rung's answer, times it and places it on the roof, as a record.

A rung that cannot run here, needs more memory than there is, answers wrongly or raises becomes a record that says so.
A ladder whose rungs run on several ranks hands the case to them: each rank then goes through `attempt` and `timed`.
"""

from __future__ import annotations

import functools
import gc
import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar

import psutil
import torch

from labllm.bench.clock import Timing
from labllm.bench.fingerprint import source_hash, versions
from labllm.bench.ladder import CannotRun, Ladder, Rung
from labllm.bench.memory import peak_bytes
from labllm.bench.poison import Poisoned
from labllm.bench.record import Host, Metric, Record, Spread, Work
from labllm.bench.roof import Roof
from labllm.bench.workload import as_dict
from labllm.hardware import can, free_memory, this_machine, triton_mode
from labllm.roofline import Cost

INTERPRETER_LIMIT = Cost(flops=2e8, bytes=2e7)
INTERPRETER_PROGRAMS = 256
INTERPRETED = "Triton's interpreter: checked, never timed"
Outcome = TypeVar("Outcome")


@dataclass(frozen=True)
class Trial:
    """A rung whose answer was right, and what the check found.

    The answer itself is kept only where the ladder's metrics ask for it: it may be large, and others run meanwhile.
    """

    rung: Rung
    facts: dict[str, Any]
    metrics: dict[str, Metric]
    out: Any


@dataclass(frozen=True)
class Case:
    """`seed` makes the inputs; `roof` is this machine's as measured now; at most `memory_limit` bytes may be held."""

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
        return self.describe(rung, "cancelled", "stopped before it ran")

    def record(self, rung: Rung) -> Record:
        """Check one rung and, where its answer is right, time it: here, or on the ladder's ranks."""
        return self.ladder.ranks(self, rung) if self.ladder.ranks else self.alone(rung)

    def alone(self, rung: Rung) -> Record:
        """As `record`, in this process."""
        trial = self.attempt(rung)
        return self.timed(trial) if isinstance(trial, Trial) else trial

    def attempt(self, rung: Rung) -> Trial | Record:
        """Check one rung; the record where there is nothing to time."""
        if reason := self._impossible(rung):
            return self.describe(rung, "cannot run here", reason)
        if reason := self._too_big(rung):
            return self.describe(rung, "out of memory", reason)
        return self._survive(rung, lambda: self._check(rung))

    def timed(self, trial: Trial) -> Record:
        """Time a rung whose answer was right."""
        if self._interpreted(trial.rung):
            return self.describe(
                trial.rung, "ok", INTERPRETED, method=INTERPRETED, metrics=trial.metrics, **trial.facts
            )
        return self._survive(trial.rung, lambda: self._placed(trial, self._timing(trial.rung)), **trial.facts)

    def _survive(self, rung: Rung, work: Callable[[], Outcome], **facts: Any) -> Outcome | Record:
        """What `work` returns in inference mode, or the record that says how it failed, with the `facts` so far."""
        try:
            with torch.inference_mode():
                return work()
        except CannotRun as error:
            return self.describe(rung, "cannot run here", str(error), **facts)
        except (torch.OutOfMemoryError, MemoryError) as error:
            return self.describe(rung, "out of memory", str(error).split("\n")[0], **facts)
        except Exception as error:  # a rung is anybody's code: whatever it raises becomes its record
            return self.describe(rung, "failed", f"{type(error).__name__}: {error}".split("\n")[0], **facts)
        finally:
            self._sweep()

    def _timing(self, rung: Rung) -> Timing:
        touched = self.ladder.cost(self.workload).bytes
        return self.ladder.clock.time(
            rung.run, lambda more: self.state(rung, self.seed + more), self.device, touched=touched
        )

    def _check(self, rung: Rung) -> Trial | Record:
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
            return self.describe(rung, "wrong", verdict.reason, **_finite(facts))
        return Trial(rung, facts, metrics, out if self.ladder.metrics else None)

    def _distance(self, inputs: Any, out: Any) -> float:
        return self.ladder.compare(out, lambda rows: self.ladder.reference(inputs, rows), self.dtype, self.seed).error

    def _impossible(self, rung: Rung) -> str:
        for need in rung.needs:
            if not (answer := can(need, self.device)):
                return answer.reason
        if self._interpreted(rung):
            cost = self.ladder.cost(self.workload)
            programs = rung.programs(self.workload) if rung.programs else 0
            if self.dtype == "bfloat16":
                return "Triton's interpreter computes wrong results in bfloat16; choose float16 or float32"
            large = cost.flops > INTERPRETER_LIMIT.flops or cost.bytes > INTERPRETER_LIMIT.bytes
            if large or programs > INTERPRETER_PROGRAMS:
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

    def _placed(self, trial: Trial, timing: Timing) -> Record:
        spread = Spread.of(timing.samples)
        cost, machine = self.ladder.cost(self.workload), this_machine(self.device)
        shares: dict[str, float] = {}
        flags: list[str] = []
        datasheet = Roof.of_spec(machine.spec) if machine.spec else None
        for name, roof in (("of_datasheet", datasheet), ("of_ceiling", self.roof)):
            roof = self.ladder.roof(roof) if roof else None
            floor = roof.seconds(cost, self.dtype) if roof else None
            if roof and floor is not None:
                shares[name] = floor / spread.median
                if shares[name] > 1:
                    flags.append(_above(roof, cost, machine.cache))
        metrics = dict(trial.metrics)
        if self.ladder.metrics:
            timed = trial.out if timing.out is None else timing.out
            further = self.ladder.metrics(self.workload, timed, spread.median)
            metrics |= {name: Metric(value=value, unit=unit) for name, (value, unit) in further.items()}
        facts = shares | trial.facts | {"flags": tuple(flags), "metrics": metrics}
        return self.describe(trial.rung, "ok", time=spread, method=timing.method, **facts)

    @property
    def host(self) -> Host:
        """This machine, as its records name it."""
        machine = this_machine(self.device)
        return Host(name=machine.name, kind=machine.kind, versions=versions(), shared=_shared(self.device))

    def describe(self, rung: Rung, status: str, reason: str = "", **facts: Any) -> Record:
        """The record of a rung with this status; `facts` are further fields."""
        cost = self.ladder.cost(self.workload)
        moved = rung.moved(self.workload) if rung.moved else cost
        return Record(
            ladder=self.ladder.name,
            rung=rung.name,
            peer=rung.peer,
            workload=as_dict(self.workload),
            status=status,
            reason=reason,
            compulsory=Work(flops=cost.flops, bytes=cost.bytes),
            moved=Work(flops=moved.flops, bytes=moved.bytes),
            host=self.host,
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
    """True where a process computes on the GPU that is neither this one nor started by it."""
    if torch.device(device).type != "cuda":
        return False
    gpu = f"GPU-{torch.cuda.get_device_properties(0).uuid}"
    query = ["nvidia-smi", f"--id={gpu}", "--query-compute-apps=pid", "--format=csv,noheader"]
    try:
        answer = subprocess.run(query, capture_output=True, text=True, timeout=10).stdout
    except (OSError, subprocess.TimeoutExpired):
        return False
    found = {int(word) for word in answer.split() if word.isdigit()}
    own = {os.getpid(), *(child.pid for child in psutil.Process().children(recursive=True))}
    return bool(found - own) if found & own else len(found) > 1  # in a container the driver may count otherwise
