"""How many queries and keys a flash program takes at a time, by what the device reports and never by its name.

Tiles are listed best first, as measured on Hopper; the first whose copies fit the shared memory of a program is taken.
Accumulators of the listed tiles fit the registers of every GPU that Triton compiles for. Float32 is multiplied
outside the tensor cores, where a program holds whole operands in registers: small tiles. In the interpreter tiles are
small too, so that a short sequence still has several.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from labllm.hardware import Machine


class Tiles(NamedTuple):
    """Queries and keys of a tile, warps of a program, and tiles of k and v in flight."""

    block_m: int
    block_n: int
    num_warps: int
    num_stages: int

    def shared_memory(self, head_dim: int, element_size: int) -> int:
        """Bytes of shared memory at most: one tile of q, and num_stages tiles of k and of v."""
        return element_size * padded(head_dim) * (self.block_m + 2 * self.num_stages * self.block_n)


INTERPRETED = Tiles(32, 32, 4, 1)
SLACK = 2048  # bytes besides the tiles: barriers, alignment, sums across warps
LISTED = {  # by (element size, padded head_dim)
    (2, 64): (Tiles(64, 64, 4, 3),),
    (2, 128): (Tiles(128, 128, 8, 3), Tiles(128, 64, 8, 2), Tiles(64, 64, 4, 2)),
    (2, 256): (Tiles(128, 64, 8, 2), Tiles(128, 32, 8, 2), Tiles(64, 32, 4, 2)),
    (4, 64): (Tiles(32, 32, 4, 2),),
    (4, 128): (Tiles(32, 16, 4, 2),),
    (4, 256): (Tiles(16, 16, 4, 2),),
}
PAIRED = {(2, 128): Tiles(128, 64, 8, 2)}  # by the same; two such programs share a multiprocessor
REGISTERS, WARP = 64 * 1024, 32  # of a multiprocessor, each of 32 bits; threads
MAX_HEAD_DIM = 256
MAX_SHARED = 16


class PagedTiles(NamedTuple):
    """Tiles over pages, query heads that share one, and registers a thread at most (None: as many as it takes)."""

    tiles: Tiles
    shared: int
    registers: int | None = None

    def programs(self, max_query_len: int, heads: int) -> int:
        """Programs for `heads` query heads of all sequences, of up to max_query_len queries each."""
        return -(-max_query_len // (self.tiles.block_m // self.shared)) * (heads // self.shared)


def padded(head_dim: int) -> int:
    """The head_dim that is computed: the next power of two, at least 16."""
    return max(16, 1 << (head_dim - 1).bit_length())


def tiles_for(head_dim: int, dtype: torch.dtype, machine: Machine) -> Tiles:
    """The tiles for heads of `head_dim` elements of `dtype` (float32, float16, bfloat16) on `machine`.

    Raises ValueError for a head_dim above 256 and where shared memory holds none of the listed tiles.
    """
    if not 0 < head_dim <= MAX_HEAD_DIM:
        raise ValueError(f"the flash kernels take head_dim up to {MAX_HEAD_DIM}, got {head_dim}")
    if machine.kind == "cpu":
        return INTERPRETED
    for tiles in LISTED[dtype.itemsize, max(64, padded(head_dim))]:
        if tiles.shared_memory(head_dim, dtype.itemsize) + SLACK <= machine.shared_memory:
            return tiles
    raise ValueError(
        f"{machine.name} has {machine.shared_memory // 1024} KB of shared memory a program, too little for a flash "
        f"tile of head_dim {head_dim} in {dtype}; use sdpa or the tiled torch rung"
    )


def paged_tiles_for(
    head_dim: int, dtype: torch.dtype, max_query_len: int, heads: int, group: int, machine: Machine
) -> PagedTiles:
    """As `tiles_for`, over pages: `heads` query heads of all sequences, `group` of which read one KV head.

    A program of a short prompt waits most of its time, for page numbers, for keys, for its own results: two on a
    multiprocessor hide each other's waits, though each has half the registers. Where programs are fewer than
    multiprocessors each has one to itself, and takes larger tiles.
    """
    shared = group if group <= MAX_SHARED else 1
    if machine.kind == "cpu":
        return PagedTiles(INTERPRETED, shared)
    if pair := PAIRED.get((dtype.itemsize, padded(head_dim))):
        paired = PagedTiles(pair, shared, REGISTERS // (2 * WARP * pair.num_warps))
        fits = 2 * (pair.shared_memory(head_dim, dtype.itemsize) + SLACK) <= machine.shared_memory
        if fits and paired.programs(max_query_len, heads) > machine.cores:
            return paired
    return PagedTiles(tiles_for(head_dim, dtype, machine), 1)


def smaller_than_recorded(machine: Machine) -> str | None:
    """The sentence that says that tiles had to shrink on this GPU, or None where the best ones fit."""
    best, tiles = LISTED[2, 128][0], tiles_for(128, torch.bfloat16, machine)
    if machine.kind == "cpu" or tiles == best:
        return None
    return (
        f"{machine.shared_memory // 1024} KB of shared memory a program: attention takes tiles of {tiles.block_m} "
        f"queries and {tiles.block_n} keys in place of {best.block_m} and {best.block_n}, so expect less of the peak"
    )


def section(keys: int, q_heads: int, kv_heads: int, head_dim: int, element_size: int, machine: Machine) -> int:
    """Query heads whose keys and values together fill at most half the last-level cache: at least one KV head's."""
    held = machine.cache // 2 // max(1, 2 * keys * head_dim * element_size)
    return max(1, held) * (q_heads // kv_heads)
