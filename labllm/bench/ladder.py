"""A ladder: an ordered list of rungs that solve one workload, each removing a cost that the rung below it still pays.

A rung is declared once, beside its code; it is then tested, timed, charted, recorded and made interactive by
`measure` and `ui.explore` without another line. Peers (what a production library gives on the same inputs) come last.

Invariant: every rung answers the same question. An exact rung is compared with the reference; a lossy one states
`own_reference`, float64 on its own quantised or sparse operands, and its distance to the exact answer becomes a
metric.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from labllm.bench.clock import Clock, KernelClock
from labllm.bench.compare import Close, Comparison
from labllm.bench.record import Record
from labllm.bench.roof import Roof
from labllm.roofline import Cost


class CannotRun(RuntimeError):
    """Raised by a rung that finds out only when called that it has no kernel here: recorded, not a failure."""


def _as_is(inputs: Any) -> Any:
    return inputs


def _never(workload: Any) -> str | None:
    return None


@dataclass(frozen=True)
class Rung:
    """One implementation.

    prepare(inputs) -> state   untimed: pack, page, plan, compile
    run(state) -> out          timed
    about                      the cost that this rung removes, in one line
    needs                      capability names of `hardware.can`
    refuses(workload)          a sentence why it cannot run that workload, or None
    moved(workload)            the Cost it really pays (default: the ladder's compulsory cost)
    memory(workload)           bytes that run allocates at its peak, by formula: checked before it runs
    programs(workload)         of a Triton kernel, how many it launches, where that says more than its bytes: the
                               interpreter takes one after the other
    own_reference(state, rows) makes the rung lossy: float64 answer on its own operands
    peer                       a production library's implementation
    in_place                   run overwrites its state: the answer that is checked comes from a fresh one
    sources                    further functions, modules by name (a kernel's file) or C++ files that the hash covers
    """

    name: str
    run: Callable[[Any], Any]
    prepare: Callable[[Any], Any] = _as_is
    about: str = ""
    needs: tuple[str, ...] = ()
    refuses: Callable[[Any], str | None] = _never
    moved: Callable[[Any], Cost] | None = None
    memory: Callable[[Any], float] | None = None
    programs: Callable[[Any], int] | None = None
    own_reference: Callable[[Any, Any], Any] | None = None
    peer: bool = False
    in_place: bool = False
    sources: tuple[Any, ...] = ()

    @property
    def code(self) -> tuple[Any, ...]:
        """What the record's source hash covers."""
        return (self.run, *((self.prepare,) if self.prepare is not _as_is else ()), *self.sources)

    @property
    def lossy(self) -> bool:
        return self.own_reference is not None


@dataclass(frozen=True)
class Ladder:
    """A workload type, how to make inputs for it, what it must cost, what the answer is, and the rungs.

    inputs(workload, device, seed) -> inputs      seeded tensors, never zeros
    cost(workload) -> Cost                        compulsory: fewest FLOPs and fewest bytes
    reference(inputs, rows) -> float64 [R, D]     rows index the output flattened to [-1, D]; None means all rows; a
                                                  tuple where the output is one, the same rows of every part
    input_bytes(workload)                         bytes of the inputs, by formula
    metrics(workload, out, seconds)               further named figures: {name: (value, unit)}
    sizes                                         named lists of workloads: 'fast', 'small', 'full'
    roof(roof) -> Roof or None                    what limits the work, from the device's roof (default: all of it)
    ranks(case, rung) -> Record                   checks and times a rung on several ranks at once
                                                  (`parallel.on_ranks`): then inputs, reference and cost are one rank's
    """

    name: str
    title: str
    workload: type
    inputs: Callable[[Any, str, int], Any]
    cost: Callable[[Any], Cost]
    reference: Callable[[Any, Any], Any]
    rungs: tuple[Rung, ...]
    sizes: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    input_bytes: Callable[[Any], float] | None = None
    metrics: Callable[[Any, Any, float | None], Mapping[str, tuple[float, str]]] | None = None
    compare: Comparison = field(default_factory=Close)
    clock: Clock = field(default_factory=KernelClock)
    roof: Callable[[Roof], Roof | None] = _as_is
    ranks: Callable[[Any, Rung], Record] | None = None

    def __post_init__(self) -> None:
        names = [r.name for r in self.rungs]
        if len(set(names)) < len(names):
            raise ValueError(f"ladder {self.name!r} names a rung twice: {names}")

    def __getitem__(self, name: str) -> Rung:
        for rung in self.rungs:
            if rung.name == name:
                return rung
        raise KeyError(f"ladder {self.name!r} has no rung {name!r}; it has {', '.join(r.name for r in self.rungs)}")

    def only(self, *names: str) -> Ladder:
        """The same ladder with just these rungs, in the order given."""
        return dataclasses.replace(self, rungs=tuple(self[n] for n in names))

    def extended(self, *rungs: Rung) -> Ladder:
        """The same ladder with further rungs on top: a learner's own, say."""
        return dataclasses.replace(self, rungs=self.rungs + rungs)
