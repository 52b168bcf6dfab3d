"""Who fetches what: the 16-byte piece of a tile that a thread copies.

A tile `[height, width]` is cut into pieces of 8 elements, numbered along the rows. In turn i, thread t takes piece
`i * threads + t`: neighbouring threads fetch neighbouring pieces, so a warp's copies coalesce.
"""

from __future__ import annotations

PIECE = 8  # 16-bit elements in 16 bytes


def piece_at(
    thread: int, turn: int, threads: int, width: int, first_row: int, first_column: int, row_length: int
) -> tuple[int, int, int]:
    """(row in the tile, column in the tile, offset in the matrix) of the first element that `thread` copies in `turn`.

    The tile is `width` elements wide and begins at (first_row, first_column) of a row-major matrix whose rows have
    `row_length` elements. Raises ValueError for a width that no whole pieces fill.
    """
    if width < PIECE or width % PIECE:
        raise ValueError(f"a tile's rows must be whole pieces of {PIECE} elements, got a width of {width}")
    piece = turn * threads + thread
    row, column = piece // (width // PIECE), piece % (width // PIECE) * PIECE
    return row, column, (first_row + row) * row_length + first_column + column
