"""The plain solution of `cut_stages`."""

from __future__ import annotations

from itertools import combinations, pairwise


def cut_stages(costs: list[float], stages: int) -> list[int]:
    best, smallest = [], float("inf")
    for cuts in combinations(range(1, len(costs)), stages - 1):
        stage = list(pairwise((0, *cuts, len(costs))))
        largest = max(sum(costs[a:b]) for a, b in stage)
        if largest < smallest:
            best, smallest = [b - a for a, b in stage], largest
    return best
