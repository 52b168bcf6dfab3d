"""How much a program of the paged kernels takes at a time, and how many programs share a sequence.

Both follow from what the device reports. A tile of K and one of V together fill STAGE_BYTES, whatever head_dim and
dtype are, and the pipeline holds as many such stages as fit: that is what a program has on its way from memory. A
sequence is split among as many programs as it takes to fill the device once.
"""

from __future__ import annotations

from typing import NamedTuple

from labllm.hardware import Machine

STAGE_BYTES = 32 * 1024
SMALLEST_SHARED = 99 * 1024  # bytes that any GPU of compute capability 8.0 or newer gives a program
RESERVED = 1024  # bytes that each program takes besides
MOST_STAGES = 4
MOST_SPLITS = 128


class Tile(NamedTuple):
    """Keys a tile, warps a program, and stages of the software pipeline (of which one less is in shared memory)."""

    block_n: int
    num_warps: int
    num_stages: int


def tile_for(group: int, head_dim: int, element_size: int, machine: Machine) -> Tile:
    """The tile for `group` query heads a KV head and `head_dim` elements of `element_size` bytes, on `machine`."""
    row = 2 * _padded(head_dim) * element_size
    block_n = min(128, max(16, STAGE_BYTES // row))
    room = max(machine.shared_memory, SMALLEST_SHARED) - _scratch(group, head_dim, element_size)
    return Tile(block_n, 4, max(2, min(MOST_STAGES, 1 + room // (block_n * row))))


def places(group: int, head_dim: int, element_size: int, machine: Machine) -> int:
    """Programs of that tile for which the whole device has shared memory at once."""
    tile = tile_for(group, head_dim, element_size, machine)
    stages = (tile.num_stages - 1) * 2 * tile.block_n * _padded(head_dim) * element_size
    program = stages + _scratch(group, head_dim, element_size) + RESERVED
    return machine.cores * max(1, (max(machine.shared_memory, SMALLEST_SHARED) + RESERVED) // program)


def _padded(size: int) -> int:
    return max(16, 1 << (size - 1).bit_length())


def _scratch(group: int, head_dim: int, element_size: int) -> int:
    """Shared memory besides the tiles: queries, probabilities and layout changes; more where warpgroups multiply."""
    rows = _padded(group)
    return rows * _padded(head_dim) * (element_size + 1) * (2 if rows >= 64 else 1)


def num_splits(pairs: int, max_seq_len: int, block_n: int, places: int) -> int:
    """Programs that share one (sequence, KV head), of which there are `pairs`, with `places` for programs at once.

    As many as fill the places once: fewer leave memory idle, more start programs anew for bytes that are on their way
    already. No program takes less than a tile of the longest sequence.
    """
    tiles = max(1, -(-max_seq_len // block_n))
    return max(1, min(MOST_SPLITS, tiles, places // pairs))
