"""Waves: how well the tiles of C fill the multiprocessors.

A block a multiprocessor takes a tile at a time; when all have taken one, a wave is over. The last wave is rarely full,
and of a small C not even the first is:

    busy = tiles / (waves * multiprocessors)        waves = tiles / multiprocessors, rounded up
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Waves:
    """Tiles of C, waves that they take, and the share of multiprocessors that work, over all waves."""

    tiles: int
    waves: int
    busy: float


def waves(m: int, n: int, tile: tuple[int, int], multiprocessors: int) -> Waves:
    """For C `[m, n]` in tiles of (rows, columns). ValueError for an empty C, tile or device."""
    if min(m, n, *tile, multiprocessors) < 1:
        raise ValueError(f"C, tile and device must not be empty, got {m} x {n}, {tile}, {multiprocessors}")
    tiles = math.ceil(m / tile[0]) * math.ceil(n / tile[1])
    rounds = math.ceil(tiles / multiprocessors)
    return Waves(tiles, rounds, tiles / (rounds * multiprocessors))
