"""How the INT4 kernels cut their work, from the number of tokens and what the device reports.

Few tokens: memory sets the pace, so many small programs, K split among them until the device is full. Many tokens: the
multiplications do, so large tiles, each token's tile dequantising the weights once more. Still more tokens: dequantise
once and leave the rest to a 16-bit GEMM. Where one way overtakes the next was measured (the ladder's records show it).
"""

from __future__ import annotations

from typing import NamedTuple

from labllm.hardware import Machine
from labllm.quantization.kernel_layout import BLOCK, SPLITS


class Tile(NamedTuple):
    """What a program of kernels/int4_linear.py takes: tokens, outputs, inputs a step, and in how many ranges K is cut;
    warps, stages of the software pipeline; tiles of weights to fetch while the kernel before runs (None: wait for it).
    """

    block_m: int
    block_n: int
    block_k: int
    split: int
    num_warps: int
    num_stages: int
    ahead: int | None = None


class Strip(NamedTuple):
    """What a program of kernels/int4_gemv.py takes: strips of 16 rows, columns a step (64 a warp), warps, stages."""

    strips: int
    columns: int
    num_warps: int
    num_stages: int


class TokenTile(NamedTuple):
    """How kernels/int4_one_token.py cuts its work: programs; warps of each, 4 or 8, eight blocks of 64 columns a turn;
    turns that are on their way at once; how many of them are asked for while the kernel before runs.
    """

    programs: int
    num_warps: int
    depth: int
    ahead: int


class WideTile(NamedTuple):
    """What a program of kernels/int4_wide.py takes: tokens, ranges that K is cut into, warps of 32 rows, stages."""

    block_m: int
    split: int
    num_warps: int
    num_stages: int


SMALLEST_SHARED = 99 * 1024  # bytes that any GPU of compute capability 8.0 or newer gives a program
KEPT = 1024  # bytes of shared memory that a GPU keeps to itself for each program
FILLED = 0.8  # share of the places from which the next kernel may start early: fewer, and it crowds the free ones
LARGE = 1 << 25  # weights from which tiles of some tens of tokens are wide, and an early start pays


def tile_for(tokens: int, outputs: int, inputs: int, group_size: int, zeros: bool, machine: Machine) -> Tile:
    """The tile for x [tokens, inputs] and W [outputs, inputs] in groups of `group_size`, with or without zero points.

    A multiprocessor holds so many programs of a tile as its registers allow: that many times its cores are the places.
    """
    wide, large = -(-outputs // BLOCK) % 2 == 0, outputs * inputs >= LARGE
    block_k = 128 if inputs % 128 == 0 and group_size % 128 == 0 else 64
    block_m = next(size for size in (16, 32, 64, 128) if tokens <= size or size == 128)
    if block_m == 16:
        tile = Tile(16, 2 * BLOCK, block_k, 1, 4, 3) if wide and not zeros else Tile(16, BLOCK, block_k, 1, 4, 4)
        places = (4 if tile.block_n > BLOCK else 7) * machine.cores
    elif block_m == 32 and wide and large:
        tile, places = Tile(32, 2 * BLOCK, block_k, 1, 8, 3), 2 * machine.cores
    elif block_m < 128 and wide and outputs >= FILLED * 2 * BLOCK * machine.cores:
        tile, places = Tile(block_m, 2 * BLOCK, block_k, 1, 8, 6), machine.cores
    else:
        tile, places = Tile(block_m, BLOCK, block_k, 1, 4, 3), (2 if block_m == 128 else 3) * machine.cores
    tile = _fitting(tile, max(machine.shared_memory, SMALLEST_SHARED))
    tiles = -(-outputs // tile.block_n) * -(-tokens // block_m)
    split = max(1, min(SPLITS, inputs // tile.block_k // 4, places // tiles))
    early = tiles * split >= FILLED * places and (large or block_m != 32)
    return tile._replace(split=split, ahead=0 if early else None)


def shared_bytes(tile: Tile) -> int:
    """Shared memory of a program: x in every stage, words in all but the one that is being used."""
    x, words = 2 * tile.block_m * tile.block_k, tile.block_n * tile.block_k // 2
    return x * tile.num_stages + words * (tile.num_stages - 1)


def _fitting(tile: Tile, room: int) -> Tile:
    """The tile with as many stages, and then columns a step, as fit into `room` bytes of shared memory."""
    while shared_bytes(tile) > room and tile.num_stages > 2:
        tile = tile._replace(num_stages=tile.num_stages - 1)
    return tile if shared_bytes(tile) <= room else tile._replace(block_k=BLOCK)


def strip_for(outputs: int) -> Strip:
    """The strip for one token."""
    return Strip(1 if outputs < 8192 else 2, 512, 8, 1)


TURN = 512  # columns that a warp takes in a turn
MOST_STRIPS = 32  # strips whose sums a program keeps
TOKEN = ((2, 8, 2), (2, 4, 3), (2, 4, 2), (1, 4, 3), (1, 4, 2), (1, 4, 1))  # programs a multiprocessor, warps, depth


def token_tile(outputs: int, inputs: int, gated: bool, machine: Machine) -> TokenTile:
    """The tile for x [1, inputs]: two programs a multiprocessor where they fit into its shared memory.

    Eight warps where they take a row in one turn that four would take in two; then a turn is all that is asked for
    while the kernel before runs. A multiple of 16 programs, so that a program's strips lie alike in the blocks of 64
    rows.
    """
    room = max(machine.shared_memory, SMALLEST_SHARED) + KEPT
    tile = TokenTile(0, 4, 1, 1)
    for residents, warps, depth in TOKEN:
        if warps == 8 and not 4 * TURN < inputs <= 8 * TURN:
            continue
        programs = max(16, residents * machine.cores // 16 * 16, -(-outputs // (16 * MOST_STRIPS)))
        tile = TokenTile(programs, warps, depth, 1 if warps == 8 else depth)
        if residents * (token_bytes(tile, outputs, inputs, gated) + KEPT) <= room:
            break
    return tile


def token_bytes(tile: TokenTile, outputs: int, inputs: int, gated: bool) -> int:
    """Shared memory of a program, at most: its turns' words, scales and zero points, x, and the sums of its strips."""
    strips = -(-outputs // (16 * tile.programs))
    kept = max(8, 1 << (strips - 1).bit_length()) * (2 if gated else 1)
    columns = tile.num_warps * TURN
    turn = columns * 8 + columns // 64 * 80  # of 16 rows: words, and scales of float32 and zero points in groups of 64
    return turn * tile.depth + -(-inputs // columns) * columns * 2 + kept * tile.num_warps * 64


WIDE = {16: (4, 6, 3), 32: (4, 8, 3), 64: (4, 8, 2), 128: (4, 4, 2)}  # warps, stages, programs a multiprocessor
EVEN = 0.9  # share of the multiprocessors in use at which further ranges of K cost more than they give


def wide_tile(tokens: int, outputs: int, inputs: int, cores: int) -> WideTile:
    """As many ranges of K as give each multiprocessor its programs; for a tile of 128 tokens, whose sums weigh as much
    as the weights, so few as keep all of them busy.
    """
    block_m = next(size for size in (16, 32, 64, 128) if tokens <= size or size == 128)
    warps, stages, programs = WIDE[block_m]
    tiles = -(-outputs // (32 * warps)) * -(-tokens // block_m)
    most = max(1, min(SPLITS, inputs // 512, programs * cores // tiles))
    few = range(1, most) if 64 < tokens <= 128 else ()
    even = (n for n in few if tiles * n >= EVEN * cores * -(-tiles * n // cores))
    return WideTile(block_m, next(even, most), warps, stages)
