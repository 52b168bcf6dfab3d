"""Residual add, RMSNorm and quantisation to eight bits in one launch: what comes before an INT8 or FP8 linear.

    s = x + residual,   n = s / sqrt(mean(s^2) + eps) * w,   scale = max |n| / limit,   q = round(n / scale)

with one scale a row, found while the row is in registers: limit is 127 (INT8, rounded to the nearest integer) or 448
(FP8 E4M3, Micikevicius et al. 2022, arXiv:2209.05433), so the largest element of a row is the largest number of the
format, and n is about q * scale. A row is reduced twice, for its square and for its maximum; in separate launches the
norm would be written, read for the maximum and read again for the division. 3 T H e + T H + 4 T bytes.

Invariant: the norm is rounded once, to eight bits, and never to the tensors' dtype; a row of zeros gives zeros and
scale 1. It loses where the linear behind it is so short that eight bits save less than rounding costs in accuracy.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from .add_norm import scale_of_columns, sum_of_rows

NOTHING = tl.constexpr(1e-30)  # a row of smaller elements counts as one of zeros, whose scale is 1
ROUND = tl.constexpr(12582912.0)  # 1.5 * 2^23: beside it float32 has no fraction left, so adding it rounds


@triton.jit
def to_eight_bits(x, dtype: tl.constexpr):
    """float32 within the limits of int8 or float8e4nv, rounded to it: halves to even."""
    if dtype == tl.int8:
        x = (x + ROUND) - ROUND
    return x.to(dtype)


@triton.jit
def _add_rms_norm_quantize(
    out, scales, total, x, residual, weight, rows, eps,
    LIMIT: tl.constexpr, ROWS: tl.constexpr, HIDDEN: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    sums, at, inside = sum_of_rows(x, residual, rows, ROWS, HIDDEN, BLOCK)
    w = scale_of_columns(weight, HIDDEN, BLOCK)
    tl.store(total + at, sums, mask=inside)
    s = sums.to(tl.float32)
    norm = s * tl.rsqrt(tl.sum(s * s, axis=1) / HIDDEN + eps)[:, None] * w
    largest = tl.max(tl.abs(norm), axis=1)
    largest = tl.where(largest > NOTHING, largest, LIMIT)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    tl.store(scales + row, largest / LIMIT, mask=row < rows)
    tl.store(out + at, to_eight_bits(norm * (LIMIT / largest)[:, None], out.dtype.element_ty), mask=inside)


def add_rms_norm_quantize(
    out: torch.Tensor,
    scales: torch.Tensor,
    total: torch.Tensor,
    x: torch.Tensor,
    residual: torch.Tensor,
    weight: torch.Tensor,
    eps: float,
    limit: float,
    rows: int,
    num_warps: int,
) -> None:
    """Launch with `rows` rows a program: out `[T, H]` int8 or float8_e4m3fn, scales `[T, 1]` float32, total, x,
    residual `[T, H]` and weight `[H]` of one dtype, all contiguous. Checks nothing: see `labllm.fusion`.
    """
    count, hidden = x.shape
    _add_rms_norm_quantize[(triton.cdiv(count, rows),)](
        out, scales, total, x, residual, weight, count, eps,
        LIMIT=limit, ROWS=rows, HIDDEN=hidden, BLOCK=triton.next_power_of_2(hidden), num_warps=num_warps,
    )  # fmt: skip
