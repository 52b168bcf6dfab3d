"""Streaming through memory: the plainest kernels there are, and the yardstick for every memory-bound one.

copy reads and writes each element once (2 n e bytes); read_sum reads each once and keeps one sum a program (n e
bytes). A program takes a contiguous piece and walks it block by block, so that loads of the next block are in flight
while this one is used. Nothing faster can be built from loads and stores, so what these reach is this device's memory
ceiling. They lose to the driver's copy engine only between host and device, which a kernel does not serve.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

BLOCK = 4096


@triton.jit
def _copy(source, target, n, PIECE: tl.constexpr, BLOCK: tl.constexpr):
    first = tl.program_id(0).to(tl.int64) * PIECE
    for start in range(0, PIECE, BLOCK):
        at = first + start + tl.arange(0, BLOCK)
        inside = at < n
        tl.store(target + at, tl.load(source + at, mask=inside), mask=inside)


@triton.jit
def _read_sum(source, sums, n, PIECE: tl.constexpr, BLOCK: tl.constexpr):
    first = tl.program_id(0).to(tl.int64) * PIECE
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, PIECE, BLOCK):
        at = first + start + tl.arange(0, BLOCK)
        total += tl.load(source + at, mask=at < n, other=0.0).to(tl.float32)
    tl.store(sums + tl.program_id(0), tl.sum(total))


def copy(source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Copy a contiguous tensor `[n]` of any dtype into `target`, alike in shape, dtype and device; returns `target`."""
    _check(source, BLOCK)
    if (target.shape, target.dtype, target.device) != (source.shape, source.dtype, source.device):
        raise ValueError(f"target must be {list(source.shape)} {source.dtype} on {source.device} as the source is")
    _copy[(triton.cdiv(source.numel(), BLOCK),)](source, target, source.numel(), PIECE=BLOCK, BLOCK=BLOCK)
    return target


def read_sum(source: torch.Tensor, piece: int) -> torch.Tensor:
    """Sum each piece of a contiguous floating tensor `[n]` in float32: `[ceil(n / piece)]`, the last piece may be
    short.
    """
    _check(source, piece)
    sums = torch.empty(triton.cdiv(source.numel(), piece), dtype=torch.float32, device=source.device)
    _read_sum[(sums.numel(),)](source, sums, source.numel(), PIECE=piece, BLOCK=BLOCK)
    return sums


def _check(source: torch.Tensor, piece: int) -> None:
    if source.dim() != 1 or not source.is_contiguous():
        raise ValueError(f"source must be one-dimensional and contiguous, got shape {list(source.shape)}")
    if piece < BLOCK or piece % BLOCK:
        raise ValueError(f"piece must be a multiple of {BLOCK} elements, got {piece}")
