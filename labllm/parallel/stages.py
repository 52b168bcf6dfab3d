"""Stages: which layers go to which device of a pipeline, cut by what they cost and not by how many they are.

A pipeline runs at the pace of its dearest stage, so the cut to look for makes that stage as cheap as possible. The
first stage pays for the embedding besides its layers, the last one for the head, which in decode weighs as much as a
few layers; a layer with a window or with more keys to read has a cost of its own.

    best(s, i) = min over j < i of max(best(s - 1, j), cost of layers j .. i-1)

is the cheapest dearest stage when s stages hold the first i layers: exact dynamic programming, O(stages layers^2).
Invariant: stages are contiguous, together all layers, and none is empty. It loses where one layer alone is dearer
than a fair share: no cut of layers mends that, a cut through them does (tensor parallelism).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise


def partition(costs: Sequence[float], stages: int, first: float = 0.0, last: float = 0.0) -> tuple[range, ...]:
    """The ranges of layers of `stages` stages whose dearest is as cheap as possible; costs[i] is layer i's.

    `first` and `last` are what the first and the last stage pay besides. Of equal cuts the one with the earliest
    bounds. Raises ValueError for more stages than layers, fewer than one, or a negative cost.
    """
    layers = len(costs)
    if not 1 <= stages <= layers:
        raise ValueError(f"A pipeline of {layers} layers has 1 to {layers} stages; got {stages}.")
    if min(*costs, first, last) < 0:
        raise ValueError(f"Costs cannot be negative; got {min(*costs, first, last)}.")
    sums = list(accumulate(costs, initial=0.0))

    def paid(stage: int, start: int, end: int) -> float:
        extra = first * (stage == 0) + last * (stage == stages - 1)
        return sums[end] - sums[start] + extra

    best: dict[int, tuple[float, tuple[int, ...]]] = {0: (0.0, (0,))}  # by layers held: dearest stage, bounds
    for stage in range(stages):
        best = {
            end: min(
                (max(dearest, paid(stage, start, end)), (*bounds, end))
                for start, (dearest, bounds) in best.items()
                if start < end
            )
            for end in range(stage + 1, layers - (stages - 1 - stage) + 1)
        }
    return tuple(range(*pair) for pair in pairwise(best[layers][1]))


def stage_costs(costs: Sequence[float], cut: Sequence[range], first: float = 0.0, last: float = 0.0) -> list[float]:
    """What each stage of a cut pays."""
    paid = [sum(costs[i] for i in layers) for layers in cut]
    paid[0] += first
    paid[-1] += last
    return paid


def balance(paid: Sequence[float]) -> float:
    """Mean over dearest stage: the share of its devices' time that a pipeline without bubbles can use, 1 if even."""
    return sum(paid) / (len(paid) * max(paid))
