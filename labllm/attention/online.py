"""The online softmax along one row of scores, step by step and in plain Python, to be looked at.

After each tile the walk knows the largest score so far and the sum of exponentials under it; a larger score rescales
what was summed before. Milakov & Gimelshein, "Online normalizer calculation for softmax", 2018.

Cost: one exponential a score and one more a tile. Invariant: after every tile, exp(m) l is the sum of exp(s) over all
scores so far, so neither the size of the tiles nor the order of the scores changes what comes out. It loses to reading
the row twice (a pass for m, a pass for l) where the row is at hand anyway: the rescaling is then for nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Step:
    """One tile, scores first .. last - 1: its own `peak`; then m, the factor `alpha`, what it `added`, and l."""

    first: int
    last: int
    peak: float
    m: float
    alpha: float
    added: float
    l: float

    @property
    def kept(self) -> float:
        """What remains of the old sum under the new maximum."""
        return self.l - self.added


def walk(scores: Sequence[float], tile: int) -> list[Step]:
    """One Step a tile of `tile` scores; the last one may be shorter. Raises ValueError without a score or a tile."""
    if tile < 1 or not scores:
        raise ValueError(
            f"a walk needs scores and a tile of at least one, got {len(scores)} scores and a tile of {tile}"
        )
    m, l, steps = -math.inf, 0.0, []
    for first in range(0, len(scores), tile):
        part = scores[first : first + tile]
        m_new = max(m, *part)
        alpha = math.exp(m - m_new)
        added = sum(math.exp(s - m_new) for s in part)
        m, l = m_new, l * alpha + added
        steps.append(Step(first, first + len(part), max(part), m, alpha, added, l))
    return steps
