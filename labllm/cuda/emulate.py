"""A tiled GEMM in NumPy: the order in which a block's tiles travel, with the bytes counted as they are copied.

    for each tile of C:                          blocks, in parallel on a GPU
        for each step along k:                   one after the other
            copy A's tile and B's to `shared`    what a block fetches
            multiply them, add to the sums       what its threads do

Nothing here is fast and nothing is estimated: the answer is C, and the traffic is the sum of the copies.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass
class Traffic:
    """Elements copied from memory to shared memory, elements written back, and multiply-adds on full tiles."""

    fetched: int = 0
    written: int = 0
    multiply_adds: int = 0


def tile_at(matrix: NDArray, row: int, column: int, height: int, width: int) -> tuple[NDArray, int]:
    """A tile `[height, width]`, zeros where it reaches over the edge of `matrix`, and how many elements were copied."""
    inside = matrix[row : row + height, column : column + width]
    tile = np.zeros((height, width), dtype=matrix.dtype)
    tile[: inside.shape[0], : inside.shape[1]] = inside
    return tile, inside.size


def tiled_gemm(a: NDArray, b: NDArray, tile: tuple[int, int, int]) -> tuple[NDArray, Traffic]:
    """A B `[m, n]` of a `[m, k]` and b `[k, n]`, in tiles of (rows, columns, steps along k), and what was moved.

    Sums are float32 (float64 for float64). Raises ValueError for shapes that do not fit or an empty tile.
    """
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[0]:
        raise ValueError(f"a must be [m, k] and b [k, n], got {list(a.shape)} and {list(b.shape)}")
    rows, columns, depth = tile
    if min(tile) < 1:
        raise ValueError(f"a tile has at least one row, column and step, got {tile}")
    (m, k), n = a.shape, b.shape[1]
    sums = np.float64 if a.dtype == np.float64 else np.float32
    c, moved = np.zeros((m, n), dtype=sums), Traffic()
    for row in range(0, m, rows):
        for column in range(0, n, columns):
            total = np.zeros((rows, columns), dtype=sums)
            for step in range(0, k, depth):
                a_tile, from_a = tile_at(a, row, step, rows, depth)
                b_tile, from_b = tile_at(b, step, column, depth, columns)
                total += a_tile.astype(sums) @ b_tile.astype(sums)
                moved.fetched += from_a + from_b
                moved.multiply_adds += rows * columns * depth
            inside = c[row : row + rows, column : column + columns]
            inside[:] = total[: inside.shape[0], : inside.shape[1]]
            moved.written += inside.size
    return c, moved
