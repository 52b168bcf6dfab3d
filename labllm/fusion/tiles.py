"""How much a program of the fused kernels takes: whole rows where they are reduced, pieces of rows where not.

Where rows may be cut, a thread takes one 16-byte load of half precision from each input, and the device has many such
programs in flight: larger pieces wait longer for their last load. A row that is reduced stays with one program, whose
warps wait for each other at every reduction: few warps with many elements each where other programs fill that time,
more where a multiprocessor has only the one. Short rows share a program.
"""

from __future__ import annotations

from typing import NamedTuple

from labllm.hardware import Machine

WARP = 32
TILE = 2048  # elements that rows shorter than this are gathered to
PIECE = 1024  # elements that a program takes where rows may be cut
EACH, MOST_EACH = 8, 64  # elements a thread: one 16-byte load of half precision, and what its registers hold
STREAMING, HURRIED = 4, 8  # warps for a row: beside other programs on a multiprocessor, and alone


class Tile(NamedTuple):
    """Rows and columns a program, both powers of two, and its warps."""

    rows: int
    block: int
    num_warps: int


def whole_rows(count: int, hidden: int, machine: Machine, most_each: int = MOST_EACH) -> Tile:
    """The tile for `count` rows of `hidden` elements, each reduced by one program, at most `most_each` a thread."""
    block = _power_of_two(hidden)
    rows = _shared_rows(count, block, 1, TILE, machine)
    warps = STREAMING if -(-count // rows) > machine.cores else HURRIED
    fewest, most = (rows * block // (WARP * each) for each in (most_each, EACH))
    return Tile(rows, block, max(1, fewest, min(warps, most)))


def cut_rows(count: int, columns: int, machine: Machine) -> Tile:
    """The tile for `count` rows of `columns` elements that may be cut anywhere."""
    block = min(PIECE, _power_of_two(columns))
    rows = _shared_rows(count, block, -(-columns // block), PIECE, machine)
    return Tile(rows, block, max(1, rows * block // (WARP * EACH)))


def head_warps(elements: int, each: int) -> int:
    """Warps for one token's query heads of `elements` together, `each` a thread, its KV heads beside them."""
    return min(HURRIED, max(1, _power_of_two(elements) // (WARP * each)))


def _shared_rows(count: int, block: int, pieces: int, tile: int, machine: Machine) -> int:
    """As many rows as fill `tile` elements, and fewer where the device would not be filled."""
    rows = max(1, tile // block)
    while rows > 1 and -(-count // rows) * pieces < machine.cores:
        rows //= 2
    return rows


def _power_of_two(size: int) -> int:
    return 1 << (size - 1).bit_length()
