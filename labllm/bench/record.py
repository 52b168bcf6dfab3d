"""A record: everything that one measured figure needs to be trusted later, as JSON.

Fields hold seconds, bytes, FLOPs and shares (1.0 = 100 %). `compulsory` is what the workload must cost, `moved` what
the rung really pays. A failed measurement is a record too: its `status` says how and its `reason` says why.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

SCHEMA = 1
Status = Literal["ok", "wrong", "out of memory", "cannot run here", "failed", "cancelled"]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Spread(_Frozen):
    """Median, 10th and 90th percentile of the samples in seconds, and how many there were."""

    median: float
    p10: float
    p90: float
    samples: int

    @classmethod
    def of(cls, samples: Sequence[float]) -> Spread:
        """Summarise at least one sample."""
        ordered = sorted(samples)
        last = len(ordered) - 1
        return cls(
            median=statistics.median(ordered),
            p10=ordered[round(0.1 * last)],
            p90=ordered[round(0.9 * last)],
            samples=len(ordered),
        )


class Work(_Frozen):
    """FLOPs and bytes, as `roofline.Cost`."""

    flops: float
    bytes: float


class Metric(_Frozen):
    """A further named figure with its unit: TTFT, waste, perplexity."""

    value: float
    unit: str


class Host(_Frozen):
    """Where a record was taken: the device, its kind, the libraries' versions, and whether others used the GPU.

    `ranks` is how many of these devices (processes, on a CPU) worked on it together, for a ladder that runs on ranks.
    """

    name: str
    kind: str
    versions: dict[str, str]
    shared: bool = False
    ranks: int | None = None

    @property
    def title(self) -> str:
        """The name with the number of devices: '2 x NVIDIA H200'."""
        return f"{self.ranks} x {self.name}" if self.ranks and self.ranks > 1 and self.kind == "cuda" else self.name


class Record(_Frozen):
    """One rung on one workload on one machine."""

    ladder: str
    rung: str
    peer: bool = False
    workload: dict[str, Any]
    status: Status
    reason: str = ""
    time: Spread | None = None
    method: str = ""
    peak_bytes: float | None = None
    compulsory: Work
    moved: Work
    of_datasheet: float | None = None
    of_ceiling: float | None = None
    error: float | None = None
    tolerance: float | None = None
    metrics: dict[str, Metric] = {}
    flags: tuple[str, ...] = ()
    host: Host
    date: str
    source: str

    @property
    def seconds(self) -> float | None:
        """The median in seconds, or None where nothing was timed."""
        return self.time.median if self.time else None

    @property
    def bandwidth(self) -> float | None:
        """Compulsory bytes a second: what the work got, whatever the rung moved."""
        return self.compulsory.bytes / self.time.median if self.time else None

    @property
    def flop_rate(self) -> float | None:
        """Compulsory FLOPs a second."""
        return self.compulsory.flops / self.time.median if self.time else None

    @property
    def key(self) -> tuple[Any, ...]:
        """What makes two records the same question on the same machine: the newer replaces the older."""
        return (self.ladder, self.rung, tuple(sorted(self.workload.items())), self.host.name)


class RecordFile(_Frozen):
    """The content of one file: the schema version and the records of one ladder on one machine."""

    schema_version: int = SCHEMA
    records: tuple[Record, ...]
