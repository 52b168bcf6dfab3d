"""What records say about scaling: of each setting the time on one GPU, the best on several, and what all-reduces cost.

Two ladders meet here. 'tensor-parallel' has whole steps, from which speed-up and efficiency follow; 'all-reduce' has
messages alone, whose line (`communication.fit`) says how much of a step they are and whether that is latency. Only
records of one machine may be mixed: the caller chooses it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from labllm.bench import Record
from labllm.models.config import ModelConfig
from labllm.models.pico.shape import PICO
from labllm.models.shapes import SHAPES
from labllm.models.tensor_parallel.scaling import all_reduces, message
from labllm.parallel.communication import AlphaBeta, fit
from labllm.ui.style import count

STEPS, MESSAGES = "tensor-parallel", "all-reduce"
ALONE = "one GPU"
LIBRARY = "torch.distributed"  # the rung of MESSAGES that NCCL or gloo is
BY_LIBRARY = ("all-reduce", "packed", "sequence parallel", "cuda graph")  # the rungs of STEPS that talk by it


class Measured(NamedTuple):
    """One setting of the ladder: seconds of rung `rung` on `ranks` ranks beside `alone` on one."""

    workload: Mapping[str, Any]
    rung: str
    alone: float
    seconds: float
    records: tuple[Record, Record]

    @property
    def ranks(self) -> int:
        return self.workload["ranks"]

    @property
    def speedup(self) -> float:
        """T1 / Tn."""
        return self.alone / self.seconds

    @property
    def efficiency(self) -> float:
        """T1 / (n Tn)."""
        return self.speedup / self.ranks

    @property
    def tokens(self) -> int:
        """New tokens of the step."""
        return self.workload["batch"] * self.workload["queries"]

    @property
    def config(self) -> ModelConfig:
        return PICO if self.workload["model"] == "pico" else SHAPES[self.workload["model"]]

    @property
    def size(self) -> float:
        """Bytes that one all-reduce adds up."""
        return message(self.config, self.tokens, self.workload["dtype"])

    @property
    def words(self) -> str:
        """'decode of 16 sequences' or 'prefill of 8k tokens'."""
        if self.workload["queries"] > 1:
            return f"prefill of {count(self.tokens)} tokens"
        return f"decode of {self.tokens} sequence{'s' if self.tokens > 1 else ''}"

    def talking(self, line: AlphaBeta) -> float:
        """The share of the step that all-reduces of this line take."""
        return all_reduces(self.config) * line.seconds(self.size) / self.seconds


def measured(records: Iterable[Record], rungs: Collection[str] | None = None) -> list[Measured]:
    """The best of `rungs` (default: all that are several ranks) in every setting that has one GPU's time too.

    Decodes first, then prefills, each by tokens and ranks.
    """
    timed = [r for r in records if r.ladder == STEPS and r.seconds]
    alone = {_setting(r): r for r in timed if r.rung == ALONE}
    best: dict[tuple[Any, ...], Record] = {}
    for r in timed:
        if r.rung != ALONE and (rungs is None or r.rung in rungs) and r.workload["ranks"] > 1 and _setting(r) in alone:
            key = (_setting(r), r.workload["ranks"])
            if key not in best or r.seconds < best[key].seconds:
                best[key] = r
    found = [_of(alone[setting], r) for (setting, _), r in best.items()]
    return sorted(found, key=lambda m: (m.workload["model"], m.workload["queries"] > 1, m.tokens, m.ranks))


def line(records: Iterable[Record], ranks: int = 2, rung: str = LIBRARY) -> AlphaBeta | None:
    """The line of an all-reduce by a rung of 'all-reduce', in the dtype with most sizes; None below two sizes."""
    by_dtype: dict[str, dict[float, float]] = {}
    for r in records:
        if r.ladder == MESSAGES and r.rung == rung and r.seconds and r.workload["ranks"] == ranks:
            by_dtype.setdefault(r.workload["dtype"], {})[float(r.workload["size"])] = r.seconds
    times = max(by_dtype.values(), key=len, default={})
    return fit(list(times), list(times.values())) if len(times) > 1 else None


def _of(alone: Record, best: Record) -> Measured:
    return Measured(best.workload, best.rung, alone.seconds or 0.0, best.seconds or 0.0, (alone, best))


def _setting(record: Record) -> tuple[Any, ...]:
    """The workload without its ranks, on one machine: one GPU's time is the same beside any number of them."""
    rest = tuple(sorted((name, value) for name, value in record.workload.items() if name != "ranks"))
    return record.host.name, rest
