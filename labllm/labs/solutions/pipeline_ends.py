"""The plain solution of `pipeline_ends`."""

from __future__ import annotations


def pipeline_ends(seconds: list[float], micro_batches: int, send: float) -> list[list[float]]:
    ends = []
    ready = [0.0] * micro_batches
    for took in seconds:
        free, row = 0.0, []
        for m in range(micro_batches):
            free = max(ready[m], free) + took
            row.append(free)
        ready = [end + send for end in row]
        ends.append(row)
    return ends
