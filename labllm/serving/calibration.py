"""Calibration: the four numbers of `StepTime` that no datasheet knows, from a few measured runs.

For given shapes a run's time is linear in (overhead, launch, 1 / memory efficiency, 1 / compute efficiency), once it is
known what binds in each step: the host, the memory or the arithmetic; and what binds depends on the numbers. So two
questions are asked in turn until the answers stay the same: what binds, and which numbers fit best (least squares of
relative errors, none of them better than the datasheet). Whether the host ever binds is tried both ways.

It needs runs in which different things matter: decoding at two batch sizes tells overhead from bandwidth, a long prompt
tells the FLOP rate, a short one the launches. Invariant: on data that the model itself made it returns that model.
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
NEGLIGIBLE = 1e-4  # of squared relative errors: a simpler model that misses by a percent is as good


class Observed(NamedTuple):
    """Steps that ran one after the other, and the seconds that they took together."""

    steps: Sequence[StepShape]
    seconds: float


def fit(start: StepTime, observed: Sequence[Observed]) -> StepTime:
    """`start` with overhead, launch and efficiencies that explain what was observed.

    Raises ValueError where the observations cannot tell overhead, bandwidth and FLOP rate apart.
    """
    prompts = [o.seconds / len(o.steps) for o in observed if not any(shape.decodes for shape in o.steps)]
    found = [_settled(replace(start, launch=launch), observed) for launch in (0.0, *prompts)]
    return min(found, key=lambda model: max(NEGLIGIBLE, _error(model, observed)))  # the first of equals: no launches


def _error(model: StepTime, observed: Sequence[Observed]) -> float:
    """Sum of squared relative errors."""
    return sum((_seconds(model, o.steps) / o.seconds - 1) ** 2 for o in observed)


def _seconds(model: StepTime, steps: Sequence[StepShape]) -> float:
    total = before = 0.0
    for shape in steps:
        before = model.seconds(shape, before)
        total += before
    return total


def _settled(model: StepTime, observed: Sequence[Observed]) -> StepTime:
    """The numbers that fit, what binds being asked again until nothing changes."""
    seconds = np.array([o.seconds for o in observed])
    floor = np.array([0.0, 0.0, 1.0, 1.0])
    for _ in range(ROUNDS):
        parts = np.array([_row(model, o.steps) for o in observed]) / seconds[:, None]
        rows, fixed = parts[:, :4], parts[:, 4]
        told = rows.any(axis=0)
        if not told[[0, 2, 3]].all() or np.linalg.matrix_rank(rows) < told.sum():
            if model.launch:
                return replace(model, launch=0.0)
            raise ValueError(
                f"{len(observed)} observations do not tell overhead, bandwidth and FLOP rate apart: "
                "add decoding at another batch size and a long prompt."
            )
        overhead, launch, memory, compute = (floor + _non_negative(rows, 1.0 - fixed - rows @ floor)).tolist()
        fitted = replace(
            model,
            overhead=overhead,
            launch=launch if told[1] else 0.0,
            memory_efficiency=1 / memory,
            compute_efficiency=1 / compute,
        )
        if fitted == model:
            break
        model = fitted
    return model


def _row(model: StepTime, steps: Sequence[StepShape]) -> list[float]:
    """A run by what binds: [steps, launched steps, memory-bound seconds, compute-bound seconds, communication].

    The first two count; bound seconds are at full efficiency. Where the host binds, a step takes its launches without
    the time of the step before, and nothing else of it counts.
    """
    free = replace(model, launch=0.0)
    total, last, before = np.zeros(5), np.zeros(5), 0.0
    for shape in steps:
        if not shape.decodes and free.seconds(shape) < model.launch - before:
            last = np.array([0.0, 1.0, 0.0, 0.0, 0.0]) - last
        else:
            last = np.array([1.0, 0.0, 0.0, 0.0, model.communication(shape.tokens)])
            for cost in model.costs(shape):
                by_flops, by_bytes = cost.flops / model.peak, cost.bytes / model.bandwidth
                compute = by_flops / model.compute_efficiency > by_bytes / model.memory_efficiency
                last[3 if compute else 2] += by_flops if compute else by_bytes
        before = model.seconds(shape, before)
        total += last
    return total.tolist()


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
