"""Lab 06: which 16 bytes of a tile a thread copies, and where they lie in the matrix.

Teaches the index arithmetic that every tiled kernel begins with: from a thread's number to a place in the tile, and
from there to an offset in memory, such that neighbouring threads touch neighbouring bytes.
"""

from __future__ import annotations

from labllm.cuda.tiles import PIECE, piece_at
from labllm.labs.exercise import Case, Exercise, Mistake

Answer = tuple[int, int, int]


def reference(thread: int, turn: int, threads: int, width: int, top: int, left: int, k: int) -> Answer:
    """(row, column, offset)."""
    return piece_at(thread, turn, threads, width, top, left, k)


def _at(piece: int, width: int, top: int, left: int, k: int) -> Answer:
    row, column = piece // (width // PIECE), piece % (width // PIECE) * PIECE
    return row, column, (top + row) * k + left + column


def _one_after_another(thread: int, turn: int, threads: int, width: int, r: int, c: int, k: int) -> Answer:
    return _at(2 * thread + turn, width, r, c, k)


def _without_turns(thread: int, turn: int, threads: int, width: int, r: int, c: int, k: int) -> Answer:
    return _at(thread, width, r, c, k)


def _single_elements(thread: int, turn: int, threads: int, width: int, r: int, c: int, k: int) -> Answer:
    piece = turn * threads + thread
    row, column = divmod(piece, width)
    return row, column, (r + row) * k + c + column


def _pieces_for_columns(thread: int, turn: int, threads: int, width: int, r: int, c: int, k: int) -> Answer:
    row, column = divmod(turn * threads + thread, width // PIECE)
    return row, column, (r + row) * k + c + column


def _tile_is_the_matrix(thread: int, turn: int, threads: int, width: int, r: int, c: int, k: int) -> Answer:
    row, column, _ = piece_at(thread, turn, threads, width, r, c, k)
    return row, column, (r + row) * width + c + column


def _tile_at_the_origin(thread: int, turn: int, threads: int, width: int, r: int, c: int, k: int) -> Answer:
    row, column, _ = piece_at(thread, turn, threads, width, r, c, k)
    return row, column, row * k + column


def _down_the_columns(thread: int, turn: int, threads: int, width: int, r: int, c: int, k: int) -> Answer:
    piece = turn * threads + thread
    height = 2 * threads * PIECE // width
    row, column = piece % height, piece // height * PIECE
    return row, column, (r + row) * k + c + column


EXERCISE = Exercise(
    name="tile_piece",
    lab=6,
    title="The 16 bytes of A's tile that a thread copies in a turn.",
    signature=(
        "tile_piece(thread: int, turn: int, threads: int, width: int, top: int, left: int, k: int)"
        " -> tuple[int, int, int]"
    ),
    shapes="""
thread        0 .. threads - 1; each copies one piece of 8 elements a turn
width         elements in a row of the tile, a multiple of 8
top, left     row and column of A where the tile begins; A's rows have k elements
returns (row in the tile, column in the tile, offset in A) of the piece's first element""",
    formula="""
pieces are numbered along the rows of the tile; in turn i, thread t takes piece i * threads + t
offset = row in A * k + column in A""",
    reference=reference,
    library="labllm.cuda.tiles.piece_at",
    parts=("row", "column", "offset"),
    cases=(
        Case("thread 0, the first piece of all", lambda g: (0, 0, 256, 32, 0, 0, 4096)),
        Case("thread 5 of a tile 32 wide", lambda g: (5, 0, 256, 32, 128, 64, 4096)),
        Case("thread 5, the second turn", lambda g: (5, 1, 256, 32, 128, 64, 4096)),
        Case("thread 127 of a tile 64 wide, k = 1000", lambda g: (127, 1, 128, 64, 256, 192, 1000)),
    ),
    hints=(
        "First the number of the piece: in every turn all threads take one, so a turn moves on by `threads` pieces.",
        "A row of the tile holds width / 8 pieces. Whole rows before this piece: an integer division. The rest: `%`.",
        "The column counts elements, and a piece has 8 of them.",
        "The offset is that of A, whose rows are k long, and the tile begins at row top and column left.",
    ),
    mistakes=(
        Mistake(
            "A thread takes neighbouring pieces turn by turn; then a warp's copies do not coalesce.", _one_after_another
        ),
        Mistake("The turn is left out: every turn copies the same pieces.", _without_turns),
        Mistake("The tile is cut into single elements; a piece has 8.", _single_elements),
        Mistake("The column counts pieces; it should count elements, 8 a piece.", _pieces_for_columns),
        Mistake(
            "The offset uses the tile's width as the length of A's rows; they have k elements.", _tile_is_the_matrix
        ),
        Mistake("The offset is that within a tile at A's corner; add top and left.", _tile_at_the_origin),
        Mistake(
            "Pieces are numbered down the columns; along the rows, neighbours lie side by side.", _down_the_columns
        ),
    ),
)
