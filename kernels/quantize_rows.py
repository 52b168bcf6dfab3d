"""Activations in eight bits, a scale for each token: what the integer and the FP8 tensor cores multiply.

    scale[m] = max_k |x[m, k]| / top,     q[m, k] = round(x[m, k] / scale[m])      top = 127 (INT8), 448 (FP8 E4M3)

A program takes one row, finds its largest element and divides by it, in one launch. Cost: 2 M K bytes read and M K
written. Invariant: a row of zeros gets the scale 1 and stays zero. It loses where one element of a row is far larger
than the others, for these then share few of the 255 levels: SmoothQuant's reason to be.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

TOP = {torch.int8: 127.0, torch.float8_e4m3fn: 448.0}


@triton.jit
def _round_even(x):
    """x, below 2^22 in size, to the nearest whole number: there a float32 has no bits left for a fraction."""
    magic: tl.constexpr = 12582912.0  # 1.5 * 2^23
    return (x + magic) - magic


@triton.jit
def _quantize_rows(q, scales, x, K, x_row, TOP: tl.constexpr, WHOLE: tl.constexpr, BLOCK: tl.constexpr):
    row, k = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    values = tl.load(x + row * x_row + k, mask=k < K, other=0.0).to(tl.float32)
    largest = tl.max(tl.abs(values), 0)
    scale = tl.where(largest > 0, largest / TOP, 1.0)
    values = tl.minimum(tl.maximum(values / scale, -TOP), TOP)
    tl.store(q + row * K + k, (_round_even(values) if WHOLE else values).to(q.dtype.element_ty), mask=k < K)
    tl.store(scales + row, scale)


def quantize_rows(q: torch.Tensor, scales: torch.Tensor, x: torch.Tensor) -> None:
    """Launch: q `[M, K]` contiguous, int8 or float8_e4m3fn; scales `[M]` float32; x `[M, K]`, rows of stride 1, K up
    to 32768. Checks nothing: see `labllm.quantization.eight_bits`.
    """
    rows, inputs = x.shape
    block = triton.next_power_of_2(inputs)
    _quantize_rows[(rows,)](
        q, scales, x, inputs, x.stride(0), TOP=TOP[q.dtype], WHOLE=q.dtype == torch.int8, BLOCK=block,
        num_warps=min(16, max(1, block // 1024)),
    )  # fmt: skip
