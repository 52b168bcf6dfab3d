"""The plain solution of `bubble_fraction`."""

from __future__ import annotations


def bubble_fraction(spans: list[tuple[int, float, float]], stages: int) -> float:
    first = min(start for _, start, _ in spans)
    last = max(end for _, _, end in spans)
    computed = sum(end - start for _, start, end in spans)
    return 1 - computed / (stages * (last - first))
