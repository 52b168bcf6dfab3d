"""How much a program of the paged kernels takes at a time, and how many programs share a sequence.

Both follow from what the device reports, and were chosen by measurement on Hopper. Where sequences and KV heads alone
fill the GPU a program is wide: a tile of K and one of V fill 32 KB, and the pipeline holds as many such stages as fit,
which is what a program has on its way from memory. Where they do not, a sequence is shared out to two programs a
multiprocessor, which are narrow: half the bytes and half the warps, so that they begin, wait and end in less time.
"""

from __future__ import annotations

from typing import NamedTuple

from labllm.hardware import Machine

WIDE, NARROW = (32 * 1024, 4), (16 * 1024, 2)  # bytes of a stage, warps
NARROW_ELEMENTS = 16 * 256  # of a program's answer at most, for two warps to hold in registers
SMALLEST_SHARED = 99 * 1024  # bytes that any GPU of compute capability 8.0 or newer gives a program
MOST_STAGES = 4
MOST_SPLITS = 128
PROGRAMS = 2  # a multiprocessor, where sequences are shared out
ENOUGH = 0.9  # of the multiprocessors busy with a whole (sequence, KV head) read as fast as all can


class Tile(NamedTuple):
    """Keys a tile, warps a program, and stages of the software pipeline (of which one less is in shared memory)."""

    block_n: int
    num_warps: int
    num_stages: int


def tile_for(group: int, head_dim: int, element_size: int, machine: Machine, splits: int = 1) -> Tile:
    """The tile for `group` query heads a KV head and `head_dim` elements of `element_size` bytes, on `machine`, where
    `splits` programs share a sequence."""
    narrow = splits > 1 and _padded(group) * _padded(head_dim) <= NARROW_ELEMENTS
    stage, warps = NARROW if narrow else WIDE
    row = 2 * _padded(head_dim) * element_size
    block_n = min(128, max(16, stage // row))
    room = max(machine.shared_memory, SMALLEST_SHARED) - _scratch(group, head_dim, element_size)
    return Tile(block_n, warps, max(2, min(MOST_STAGES, 1 + room // (block_n * row))))


def num_splits(pairs: int, max_seq_len: int, group: int, head_dim: int, element_size: int, machine: Machine) -> int:
    """Programs that share one (sequence, KV head), of which there are `pairs`; arguments as for `tile_for`.

    One where the pairs alone keep the device busy; else as many as make PROGRAMS a multiprocessor. No program takes
    less than a tile of the longest sequence.
    """
    if pairs >= ENOUGH * machine.cores:
        return 1
    tiles = -(-max_seq_len // tile_for(group, head_dim, element_size, machine, 2).block_n)
    return max(1, min(MOST_SPLITS, tiles, PROGRAMS * machine.cores // max(1, pairs)))


def _padded(size: int) -> int:
    return max(16, 1 << (size - 1).bit_length())


def _scratch(group: int, head_dim: int, element_size: int) -> int:
    """Shared memory besides the tiles: queries, probabilities and layout changes; more where warpgroups multiply."""
    rows = _padded(group)
    return rows * _padded(head_dim) * (element_size + 1) * (2 if rows >= 64 else 1)
