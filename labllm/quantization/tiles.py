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
    warps, stages of the software pipeline, tiles of weights to fetch ahead.
    """

    block_m: int
    block_n: int
    block_k: int
    split: int
    num_warps: int
    num_stages: int
    ahead: int = 0


class Strip(NamedTuple):
    """What a program of kernels/int4_gemv.py takes: strips of 16 rows, columns a step (64 a warp), warps, stages."""

    strips: int
    columns: int
    num_warps: int
    num_stages: int


def tile_for(tokens: int, outputs: int, inputs: int, group_size: int, machine: Machine) -> Tile:
    """The tile for x [tokens, inputs] and W [outputs, inputs] in groups of `group_size`."""
    wide = outputs > BLOCK and -(-outputs // BLOCK) % 2 == 0
    block_k = 128 if inputs % 128 == 0 and group_size % 128 == 0 else 64
    if tokens <= 16:
        block_n = 128 if wide else BLOCK
        split = _split(-(-outputs // block_n), inputs // block_k, 4 * machine.cores)
        return Tile(16, block_n, block_k, split, 4, 3, 2)
    block_m = 32 if tokens <= 32 else 64 if tokens <= 64 else 128
    tiles = -(-outputs // BLOCK) * -(-tokens // block_m)
    return Tile(block_m, BLOCK, block_k, _split(tiles, inputs // block_k, 3 * machine.cores), 4, 3)


def strip_for(outputs: int) -> Strip:
    """The strip for one token."""
    return Strip(1 if outputs < 8192 else 2, 512, 8, 1)


def _split(tiles: int, steps: int, programs: int) -> int:
    """Ranges of K for which `tiles` tiles come to about `programs` programs; at least four steps each."""
    return max(1, min(SPLITS, steps // 4, programs // max(1, tiles)))
