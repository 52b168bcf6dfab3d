"""How many bytes a tiled GEMM asks memory for: what a tile buys.

A block that computes `tile_m x tile_n` of C needs `tile_m` rows of A and `tile_n` columns of B, each of k elements, and
fetches them once:

    bytes = e m n k (1 / tile_n + 1 / tile_m) + e m n

so an element of A is fetched n / tile_n times and one of B m / tile_m times. The caches answer many of these requests:
this is what the kernel asks for, not what reaches DRAM. A naive kernel's warp asks for one element of A and 32 of B
a step: a tile of 1 x 32.
"""

from __future__ import annotations

from labllm.roofline import Cost

NAIVE_TILE = (1, 32)


def requested(m: int, n: int, k: int, tile: tuple[int, int], element_bytes: float = 2) -> Cost:
    """FLOPs, and bytes that tiles of `tile` (rows and columns of C) ask for. ValueError for an empty tile."""
    rows, columns = tile
    if rows < 1 or columns < 1:
        raise ValueError(f"a tile has at least one row and one column, got {rows} x {columns}")
    fetched = m * n * k * (1 / columns + 1 / rows)
    return Cost(2.0 * m * n * k, element_bytes * (fetched + m * n))


def intensity(tile: tuple[int, int], element_bytes: float = 2) -> float:
    """FLOPs a requested byte, for large k: 2 / (e (1 / tile_m + 1 / tile_n))."""
    return 2 / (element_bytes * (1 / tile[0] + 1 / tile[1]))
