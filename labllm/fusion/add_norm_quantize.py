"""Residual add, RMSNorm and quantisation of each row to INT8 or FP8, in one launch: kernels/add_norm_quantize.py.

What an eight-bit linear wants of its activations: codes, and one float32 scale a row, [T, 1], as the row-wise `scale_a`
of `torch._scaled_mm`. The scale is dynamic, from the row itself, so nothing is calibrated. FP8 needs a GPU that has it;
INT8 runs everywhere. A captured CUDA graph may hold it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from labllm.fusion.check import check_eight_bits, check_norm
from labllm.fusion.codes import LIMITS
from labllm.fusion.tiles import whole_rows
from labllm.hardware import this_machine

MOST_EACH = 128  # a thread keeps the norm through a second reduction: few threads, or registers for one program only


def add_rms_norm_quantize(
    x: Tensor, residual: Tensor, weight: Tensor, dtype: torch.dtype, eps: float = 1e-6
) -> tuple[Tensor, Tensor, Tensor]:
    """(codes `[T, H]` of dtype, scales `[T, 1]` float32, x + residual `[T, H]`); the norm is about codes * scales.

    x, residual `[T, H]` and weight `[H]` contiguous, one dtype of float32, float16, bfloat16, one device; dtype is
    torch.int8 or torch.float8_e4m3fn. 3 T H e + T H + 4 T bytes. Raises ValueError for others, and where the device
    cannot write float8.
    """
    check_norm(x, residual, weight=weight)
    check_eight_bits(dtype, x.device.type)
    codes, total = torch.empty_like(x, dtype=dtype), torch.empty_like(x)
    scales = x.new_empty(len(x), 1, dtype=torch.float32)
    if x.numel():
        from labllm.kernels import add_norm_quantize as kernel

        tile = whole_rows(*x.shape, this_machine(x.device.type), MOST_EACH)
        kernel.add_rms_norm_quantize(
            codes, scales, total, x, residual, weight, eps, LIMITS[dtype], tile.rows, tile.num_warps
        )
    return codes, scales, total
