"""The plain solution of `tile_piece`."""

from __future__ import annotations


def tile_piece(thread: int, turn: int, threads: int, width: int, top: int, left: int, k: int) -> tuple[int, int, int]:
    piece = turn * threads + thread
    pieces_a_row = width // 8
    row, column = piece // pieces_a_row, piece % pieces_a_row * 8
    return row, column, (top + row) * k + left + column
