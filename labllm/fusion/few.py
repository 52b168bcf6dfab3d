"""A linear layer for some tens of tokens, with its gate: kernels/few_linear.py, checked, tiles chosen.

A library's GEMM is made for products that wait for their arithmetic; a decode of up to about a hundred sequences waits
for the weights, which is another shape of work: more programs than tiles, and as many bytes on their way as shared
memory holds. What a library spends on a second kernel, for the gate or for the sum of shared inputs, is saved. Captured
CUDA graphs may hold it. It loses to `skinny_linear` at one token, and to a GEMM at hundreds.

Launches on one device must follow one another: they share the counters of who arrived (`_arrivals`).
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from labllm.fusion.check import check_kernel, check_weight
from labllm.hardware import Machine, can_start_early, this_machine

MOST_TOKENS = 128
GATED, SHARED = (17, 128), (2, 32)  # fewest and most tokens for which it beats a GEMM, as measured on Hopper
MOST_STAGES, MOST_SPLIT = 6, 8
BLOCK_N, RESERVED = 64, 2048  # the rows that tensor cores want; bytes of shared memory besides the tiles
MOST_TILES = 1 << 14


class FewTile(NamedTuple):
    """Outputs and inputs of a tile, programs that share a row, warps, and tiles on their way at once."""

    block_n: int
    block_k: int
    split: int
    num_warps: int
    stages: int


def few_linear(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, *, gated: bool = False, tile: FewTile | None = None
) -> Tensor:
    """x weight^T + bias for x `[T, K]` with T in 1 .. 128 -> `[T, N]`; sums are float32.

    weight `[N, K]`, or `[2 N, K]` with gates first where `gated`: then SiLU(gate) * up; bias `[rows of weight]`.
    Contiguous, float16 or bfloat16, one device. Raises ValueError for others.
    """
    outputs = _check(x, weight, bias, gated)
    from labllm.kernels import few_linear as kernel

    machine, rows = this_machine(x.device.type), max(16, 1 << (len(x) - 1).bit_length())
    tile = tile or few_tile(rows, outputs, x.shape[1], gated, machine)
    tiles = -(-outputs // tile.block_n)
    out = x.new_empty(len(x), outputs)
    room = tiles, tile.split, rows, tile.block_n
    partial = None if tile.split == 1 else torch.empty(room, dtype=torch.float32, device=x.device)
    arrivals, overlap = _arrivals(x.device), can_start_early(x.device.type)
    kernel.few_linear(out, partial, arrivals, x, weight, bias, gated, rows, *tile, overlap)
    return out


def few_tile(rows: int, outputs: int, inputs: int, gated: bool, machine: Machine) -> FewTile:
    """The tile for `rows` padded tokens, with as many stages as shared memory holds, two at least.

    A program has a multiprocessor to itself; a tile's inputs are shared out to as many programs as then run at once.
    """
    if machine.kind == "cpu":
        return FewTile(BLOCK_N, 64, 1 if gated else 2, 4, 1)
    room = machine.shared_memory - RESERVED
    column = 2 * (BLOCK_N * (2 if gated else 1) + rows)
    block_k = 128 if rows <= 64 else 64
    while 2 * block_k * column > room and block_k > 32:
        block_k //= 2
    stages = max(2, min(3 if gated else MOST_STAGES, room // (block_k * column)))
    shares = machine.cores // -(-outputs // BLOCK_N)
    split = 1 if gated else max(1, min(MOST_SPLIT, shares, inputs // (8 * block_k)))
    return FewTile(BLOCK_N, block_k, split, 4, stages)


def is_few(x: Tensor, weight: Tensor, gated: bool = False) -> bool:
    """Whether `few_linear` is expected to beat the library's GEMM for x `[T, K]`: where that needs a second launch, for
    the gate, or to sum the parts of an output that its programs share since tiles are few.
    """
    if x.dtype not in (torch.float16, torch.bfloat16):
        return False
    fewest, most = GATED if gated else SHARED
    if not fewest <= len(x) <= most:
        return False
    return gated or 2 * len(weight) <= BLOCK_N * this_machine(x.device.type).cores


@cache
def _arrivals(device: torch.device) -> Tensor:
    """Zeros [MOST_TILES] int32, which each launch leaves as it found them."""
    return torch.zeros(MOST_TILES, dtype=torch.int32, device=device)


def _check(x: Tensor, weight: Tensor, bias: Tensor | None, gated: bool) -> int:
    """How many outputs there are; ValueError for what does not fit."""
    if x.dim() != 2 or not 1 <= len(x) <= MOST_TOKENS:
        raise ValueError(f"x must be [T, K] with 1 to {MOST_TOKENS} tokens, got {list(x.shape)}")
    if x.dtype not in (torch.float16, torch.bfloat16):
        raise ValueError(f"tensor cores take float16 and bfloat16, got {x.dtype}: use F.linear")
    outputs = check_weight(x, weight, gated)
    if bias is not None and bias.shape != weight.shape[:1]:
        raise ValueError(f"bias must be [{len(weight)}], got {list(bias.shape)}")
    check_kernel(x=x, weight=weight, **({} if bias is None else {"bias": bias}))
    return outputs
