"""The price of paging: the fastest paged kernel beside the fastest attention over contiguous caches, same work.

Computed from records of `labllm.attention.paged_ladder`; nothing is measured. A contiguous cache can play only where
all lengths are equal, so nothing is said of other workloads: there the padding decides, not the table. A kernel whose
code has changed since counts only where no other was timed: the rest of its workload was recorded on another day.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from labllm.attention.paged_ladder import PAGED_DECODE
from labllm.bench import Record, stale

PLAIN = ("gather",)  # pages are not read in place


class Price(NamedTuple):
    """On one workload of one machine: the fastest of each kind."""

    paged: Record
    contiguous: Record

    @property
    def ratio(self) -> float:
        """Time of paged over time of contiguous: above 1, paging costs."""
        return (self.paged.seconds or 0.0) / (self.contiguous.seconds or 1.0)

    @property
    def row(self) -> dict[str, object]:
        """As a row of a table."""
        w = self.paged.workload
        return {
            "sequences": w["batch"],
            "context (tokens)": w["context"],
            "block size": w["block_size"],
            "paged (µs)": 1e6 * (self.paged.seconds or 0.0),
            "contiguous (µs)": 1e6 * (self.contiguous.seconds or 0.0),
            "time of paging": f"{self.ratio:.2f}x",
            "by": f"{self.paged.rung} / {self.contiguous.rung}",
        }


def prices(records: Iterable[Record]) -> list[Price]:
    """A price a workload and machine where both kinds were timed, by batch, then by context."""
    records = list(records)
    older = {r.key for r in stale(records, [PAGED_DECODE])}
    timed: dict[tuple, list[Record]] = {}
    for r in records:
        if r.seconds and r.rung not in PLAIN:
            timed.setdefault((r.host.name, tuple(sorted(r.workload.items()))), []).append(r)
    found = []
    for group in timed.values():
        paged, peers = ([r for r in group if r.peer is peer] for peer in (False, True))
        paged = [r for r in paged if r.key not in older] or paged
        if paged and peers:
            found.append(Price(*(min(kind, key=lambda r: r.seconds or 0.0) for kind in (paged, peers))))
    return sorted(found, key=lambda p: [p.paged.workload[n] for n in ("batch", "context", "block_size", "head_dim")])
