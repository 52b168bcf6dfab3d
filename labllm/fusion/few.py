"""A linear layer for some tens of tokens, with its gate: kernels/few_linear.py, checked, tiles chosen.

A library's GEMM is made for products that wait for their arithmetic; a decode of up to about a hundred sequences waits
for the weights, which is another shape of work: more programs than tiles, and as many bytes on their way as shared
memory holds. Captured CUDA graphs may hold it. It loses to `skinny_linear` at one token, and to a GEMM at hundreds.

Launches on one device must follow one another: they share the counters of who arrived (`_arrivals`).
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from labllm.fusion.check import check_kernel
from labllm.hardware import Machine, this_machine

MOST_TOKENS = 64
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
    """x weight^T + bias for x `[T, K]` with T in 1 .. 64 -> `[T, N]`; sums are float32.

    weight `[N, K]`, or `[2 N, K]` with gates first where `gated`: then SiLU(gate) * up; bias `[rows of weight]`.
    Contiguous, float16 or bfloat16, one device. Raises ValueError for others.
    """
    outputs = _check(x, weight, bias, gated)
    from labllm.kernels import few_linear as kernel

    machine, rows = this_machine(x.device.type), max(16, 1 << (len(x) - 1).bit_length())
    tile = tile or few_tile(rows, outputs, x.shape[1], gated, machine)
    tiles, halves = -(-outputs // tile.block_n), 2 if gated else 1
    out = x.new_empty(len(x), outputs)
    room = tiles * tile.split * halves * tile.block_n * rows if tile.split > 1 else 0
    partial = torch.empty(room, dtype=torch.float32, device=x.device)
    overlap = (machine.capability or (0, 0)) >= (9, 0)
    kernel.few_linear(out, partial, _arrivals(x.device), x, weight, bias, gated, rows, *tile, overlap)
    return out


def few_tile(rows: int, outputs: int, inputs: int, gated: bool, machine: Machine) -> FewTile:
    """The tile for `rows` padded tokens: two programs a multiprocessor, and as many stages as its shared memory holds.

    Rows of the weight are shared out until every multiprocessor has its two programs.
    """
    if machine.kind == "cpu":
        return FewTile(BLOCK_N, 64, 2, 4, 1)
    block_k = 64 if gated or rows > 32 else 128
    stage = 2 * block_k * (BLOCK_N * (2 if gated else 1) + rows)
    stages = max(2, min(MOST_STAGES, (machine.shared_memory // 2 - RESERVED) // stage))
    tiles, split = -(-outputs // BLOCK_N), 1
    while tiles * split < 2 * machine.cores and split < MOST_SPLIT and inputs >= 8 * split * block_k:
        split += 1
    return FewTile(BLOCK_N, block_k, 1 if gated else split, 4, stages)


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
    if weight.dim() != 2 or weight.shape[1] != x.shape[1] or not weight.numel() or (gated and len(weight) % 2):
        raise ValueError(
            f"weight must be [{'2 N' if gated else 'N'}, {x.shape[1]}], its rows as long as those of x, "
            f"got {list(weight.shape)}"
        )
    if bias is not None and bias.shape != weight.shape[:1]:
        raise ValueError(f"bias must be [{len(weight)}], got {list(bias.shape)}")
    check_kernel(x=x, weight=weight, **({} if bias is None else {"bias": bias}))
    return len(weight) // 2 if gated else len(weight)
