"""What the package ships about a machine: its records, and the roof that they draw.

A learner without that machine sets its own curves beside these. Invariant: nothing here measures, and nothing that the
learner measured gets in, so what is drawn from it is the same everywhere.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from labllm.bench.record import Record
from labllm.bench.roof import Roof
from labllm.bench.store import SHIPPED, load

H200 = "NVIDIA H200"


def shipped(ladder: str | None = None, host: str | None = None, **workload: Any) -> list[Record]:
    """The records that come with the package, timed or not: of one ladder, one machine by its name, some workloads.

    A field of the workload is asked for by its value, or by a tuple of values: `shipped("gemm", H200, n=(4096, 8192))`.
    """
    wanted = {name: value if isinstance(value, tuple) else (value,) for name, value in workload.items()}
    records = (r for r in load(ladder, folders=[SHIPPED]) if host in (None, r.host.name))
    return [r for r in records if all(r.workload.get(name) in values for name, values in wanted.items())]


def recorded_roof(host: str = H200, records: Iterable[Record] | None = None) -> Roof | None:
    """The roof of `host` by its records: 'bandwidth' at its largest size, the best of 'gemm'; None where they miss."""
    mine = [r for r in (shipped(host=host) if records is None else records) if r.host.name == host and r.seconds]
    streams = [r for r in mine if r.ladder == "bandwidth"]
    gemms = [r for r in mine if r.ladder == "gemm"]
    if not streams or not gemms:
        return None
    size = max(r.workload["mebibytes"] for r in streams)
    parts: dict[str, float] = {}
    for r in streams:
        if r.workload["mebibytes"] == size:
            parts[r.workload["pattern"]] = max(parts.get(r.workload["pattern"], 0.0), r.bandwidth or 0.0)
    flops: dict[str, float] = {}
    for r in gemms:
        flops[r.workload["dtype"]] = max(flops.get(r.workload["dtype"], 0.0), r.flop_rate or 0.0)
    return Roof(host, "recorded", max(parts.values()), flops, parts)
