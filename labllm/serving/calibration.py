"""Calibration: the three numbers of `StepTime` that no datasheet knows, from a few measured runs.

For given shapes a run's time is linear in (overhead, 1 / memory efficiency, 1 / compute efficiency), once it is known
which limit binds in each step; and which one binds depends on the efficiencies. So two questions are asked in turn
until the answers stay the same: which limit binds, and which numbers fit best (least squares of relative errors, none
of them better than the datasheet).

It needs runs in which different things matter: decoding at two batch sizes tells overhead from bandwidth, and a long
prompt tells the FLOP rate. Invariant: on data that the model itself made it returns that model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from labllm.serving.step_time import StepShape, StepTime

ROUNDS = 50


class Observed(NamedTuple):
    """Steps that ran one after the other, and the seconds that they took together."""

    steps: Sequence[StepShape]
    seconds: float


def fit(start: StepTime, observed: Sequence[Observed]) -> StepTime:
    """`start` with overhead and efficiencies that explain what was observed.

    Raises ValueError where the observations cannot tell the three numbers apart.
    """
    seconds = np.array([o.seconds for o in observed])
    model = start
    for _ in range(ROUNDS):
        rows = np.array([_row(model, o.steps) for o in observed]) / seconds[:, None]
        fixed = np.array([sum(model.communication(s.tokens) for s in o.steps) for o in observed]) / seconds
        if np.linalg.matrix_rank(rows) < 3:
            raise ValueError(
                f"{len(observed)} observations do not tell overhead, bandwidth and FLOP rate apart: "
                "add decoding at another batch size and a long prompt."
            )
        floor = np.array([0.0, 1.0, 1.0])
        found = floor + _non_negative(rows, 1.0 - fixed - rows @ floor)
        fitted = replace(
            model,
            overhead=float(found[0]),
            memory_efficiency=float(1 / found[1]),
            compute_efficiency=float(1 / found[2]),
        )
        if fitted == model:
            break
        model = fitted
    return model


def _row(model: StepTime, steps: Sequence[StepShape]) -> list[float]:
    """Seconds of a run at full efficiency by what binds: [steps, memory-bound, compute-bound]."""
    memory = compute = 0.0
    for shape in steps:
        for cost in model.costs(shape):
            by_flops, by_bytes = cost.flops / model.peak, cost.bytes / model.bandwidth
            if by_flops / model.compute_efficiency > by_bytes / model.memory_efficiency:
                compute += by_flops
            else:
                memory += by_bytes
    return [float(len(steps)), memory, compute]


def _non_negative(a: NDArray, b: NDArray) -> NDArray:
    """The x >= 0 that minimises ||a x - b||: of all sets of columns, the best whose solution is not negative."""
    best, least = np.zeros(a.shape[1]), float(np.linalg.norm(b))
    for size in range(1, a.shape[1] + 1):
        for columns in map(list, combinations(range(a.shape[1]), size)):
            x = np.linalg.lstsq(a[:, columns], b, rcond=None)[0]
            distance = float(np.linalg.norm(a[:, columns] @ x - b))
            if (x >= 0).all() and distance < least:
                best, least = np.zeros(a.shape[1]), distance
                best[columns] = x
    return best
