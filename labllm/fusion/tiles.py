"""How much a program of the fused kernels takes: whole rows where they are reduced, pieces of rows where not.

A thread that streams wants several 16-byte loads on their way at once, a device as many programs as it has
multiprocessors. So many short rows share a program, a long row gets more warps, and where there are fewer programs
than multiprocessors, each has fewer elements a thread and is sooner done.
"""

from __future__ import annotations

from typing import NamedTuple

from labllm.hardware import Machine

WARP = 32
TILE = 2048  # elements that rows shorter than this are gathered to
PIECE = 4096  # elements of one row that a program takes at most where rows may be cut
SMALLEST_PIECE = 512
MOST_WARPS = 32
STREAMING, HURRIED = 32, 8  # elements a thread: many programs a multiprocessor, and fewer than one


class Tile(NamedTuple):
    """Rows and columns a program, both powers of two, and its warps."""

    rows: int
    block: int
    num_warps: int


def whole_rows(count: int, hidden: int, machine: Machine) -> Tile:
    """The tile for `count` rows of `hidden` elements, each reduced by one program."""
    block = _power_of_two(hidden)
    rows = _shared_rows(count, block, 1, machine)
    return Tile(rows, block, _warps(rows * block, -(-count // rows), machine))


def cut_rows(count: int, columns: int, machine: Machine) -> Tile:
    """The tile for `count` rows of `columns` elements that may be cut anywhere."""
    block = min(PIECE, _power_of_two(columns))
    while block > SMALLEST_PIECE and count * -(-columns // block) < machine.cores:
        block //= 2
    pieces = -(-columns // block)
    rows = _shared_rows(count, block, pieces, machine)
    return Tile(rows, block, _warps(rows * block, -(-count // rows) * pieces, machine))


def _shared_rows(count: int, block: int, pieces: int, machine: Machine) -> int:
    """As many rows as fill TILE, and fewer where the device would not be filled."""
    rows = max(1, TILE // block)
    while rows > 1 and -(-count // rows) * pieces < machine.cores:
        rows //= 2
    return rows


def _warps(elements: int, programs: int, machine: Machine) -> int:
    each = STREAMING if programs > machine.cores else HURRIED
    return min(MOST_WARPS, max(1, elements // (WARP * each)))


def _power_of_two(size: int) -> int:
    return 1 << (size - 1).bit_length()
