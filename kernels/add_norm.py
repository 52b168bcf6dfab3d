"""Residual add and normalisation in one launch: the first kernels in which rows are reduced.

    s = x + residual,   RMSNorm: s / sqrt(mean(s^2) + eps) * w          Zhang and Sennrich 2019, arXiv:1910.07467
                        LayerNorm: (s - mean(s)) / sqrt(var(s) + eps) * w + b     Ba et al. 2016, arXiv:1607.06450

A program takes ROWS whole rows, so that a row is read once, reduced in registers and shared memory, and written once:
4 T H e bytes with the sum (RMSNorm, whose sum the next residual add needs), 3 T H e without (LayerNorm and GELU). The
sum is rounded to the tensors' dtype before it is normalised, as it would be between two launches. The weight is loaded
before the row, and with OVERLAP (early_start.py) before what the kernel before wrote is there, so that its latency is
not added to it.

Invariant: every element of a row is loaded before one is stored, so outputs may be the inputs themselves. It loses
where a row is too long for one program's registers, and where the next thing is a GEMM bound by its arithmetic.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from .activations import gelu
from .early_start import begin, launch_options


@triton.jit
def sum_of_rows(x, residual, rows, ROWS: tl.constexpr, HIDDEN: tl.constexpr, BLOCK: tl.constexpr):
    """This program's rows of x + residual `[ROWS, BLOCK]` in their dtype, their offsets, and which of them exist."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, BLOCK)[None, :]
    at = row * HIDDEN + column
    inside = (row < rows) & (column < HIDDEN)
    left = tl.load(x + at, mask=inside, other=0.0)
    right = tl.load(residual + at, mask=inside, other=0.0)
    return (left.to(tl.float32) + right.to(tl.float32)).to(left.dtype), at, inside


@triton.jit
def scale_of_columns(weight, HIDDEN: tl.constexpr, BLOCK: tl.constexpr):
    column = tl.arange(0, BLOCK)[None, :]
    return tl.load(weight + column, mask=column < HIDDEN, other=0.0).to(tl.float32)


@triton.jit
def _add_rms_norm(
    out, total, x, residual, weight, rows, eps,
    ROWS: tl.constexpr, HIDDEN: tl.constexpr, BLOCK: tl.constexpr, OVERLAP: tl.constexpr,
):  # fmt: skip
    w = scale_of_columns(weight, HIDDEN, BLOCK)
    begin(OVERLAP)
    sums, at, inside = sum_of_rows(x, residual, rows, ROWS, HIDDEN, BLOCK)
    tl.store(total + at, sums, mask=inside)
    s = sums.to(tl.float32)
    scale = tl.rsqrt(tl.sum(s * s, axis=1) / HIDDEN + eps)
    tl.store(out + at, (s * scale[:, None] * w).to(sums.dtype), mask=inside)


@triton.jit
def _add_layer_norm_gelu(
    out, x, residual, weight, bias, rows, eps, ROWS: tl.constexpr, HIDDEN: tl.constexpr, BLOCK: tl.constexpr
):
    sums, at, inside = sum_of_rows(x, residual, rows, ROWS, HIDDEN, BLOCK)
    w, b = scale_of_columns(weight, HIDDEN, BLOCK), scale_of_columns(bias, HIDDEN, BLOCK)
    s = sums.to(tl.float32)
    mean = tl.sum(s, axis=1) / HIDDEN
    centred = s - mean[:, None]
    if HIDDEN < BLOCK:
        centred = tl.where(tl.arange(0, BLOCK)[None, :] < HIDDEN, centred, 0.0)
    scale = tl.rsqrt(tl.sum(centred * centred, axis=1) / HIDDEN + eps)
    tl.store(out + at, gelu(centred * scale[:, None] * w + b).to(sums.dtype), mask=inside)


def add_rms_norm(
    out: torch.Tensor,
    total: torch.Tensor,
    x: torch.Tensor,
    residual: torch.Tensor,
    weight: torch.Tensor,
    eps: float,
    rows: int,
    num_warps: int,
    overlap: bool = False,
) -> None:
    """Launch with `rows` rows a program: out, total, x, residual `[T, H]` contiguous, weight `[H]`, one dtype; out and
    total may be x and residual; overlap needs compute capability 9.0. Checks nothing: see `labllm.fusion`.
    """
    count, hidden = x.shape
    _add_rms_norm[(triton.cdiv(count, rows),)](
        out, total, x, residual, weight, count, eps,
        ROWS=rows, HIDDEN=hidden, BLOCK=triton.next_power_of_2(hidden), OVERLAP=overlap, num_warps=num_warps,
        **launch_options(overlap),
    )  # fmt: skip


def add_layer_norm_gelu(
    out: torch.Tensor,
    x: torch.Tensor,
    residual: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    eps: float,
    rows: int,
    num_warps: int,
) -> None:
    """Launch with `rows` rows a program: out, x, residual `[T, H]` contiguous, weight and bias `[H]`, one dtype.
    Checks nothing: see `labllm.fusion`.
    """
    count, hidden = x.shape
    _add_layer_norm_gelu[(triton.cdiv(count, rows),)](
        out, x, residual, weight, bias, count, eps,
        ROWS=rows, HIDDEN=hidden, BLOCK=triton.next_power_of_2(hidden), num_warps=num_warps,
    )  # fmt: skip
