"""Residual add and normalisation in one launch, kernels/add_norm.py: what surrounds attention and MLP in every layer.

The sum is written once because the next residual add needs it, and read by nobody in between. Non-contiguous rows are
refused: copying them in silence would cost what fusing saves. Captured CUDA graphs may hold all of these.
"""

from __future__ import annotations

import torch
from torch import Tensor

from labllm.fusion.check import check_norm
from labllm.fusion.tiles import whole_rows
from labllm.hardware import can_start_early, this_machine


def add_rms_norm(
    x: Tensor, residual: Tensor, weight: Tensor, eps: float = 1e-6, overlap: bool = False
) -> tuple[Tensor, Tensor]:
    """(RMSNorm(x + residual) * weight, x + residual), both `[T, H]`, of x, residual `[T, H]` and weight `[H]`.

    Contiguous, one dtype of float32, float16, bfloat16, one device; 4 T H e bytes. overlap: start while the kernel
    before still runs, where the GPU can. Raises ValueError for others.
    """
    check_norm(x, residual, weight=weight)
    out, total = torch.empty_like(x), torch.empty_like(x)
    _launch(out, total, x, residual, weight, eps, overlap)
    return out, total


def fused_add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor, eps: float = 1e-6) -> None:
    """In place, as vLLM's operator of that name: residual becomes x + residual, and x the norm of it.

    Tensors as for `add_rms_norm`, and x and residual must not share memory; no memory is allocated. Raises ValueError.
    """
    check_norm(x, residual, weight=weight)
    if x.numel() and x.data_ptr() == residual.data_ptr():
        raise ValueError("x and residual must be two tensors: both are overwritten, with different results")
    _launch(x, residual, x, residual, weight, eps)


def add_layer_norm_gelu(x: Tensor, residual: Tensor, weight: Tensor, bias: Tensor, eps: float = 1e-5) -> Tensor:
    """GELU(LayerNorm(x + residual) * weight + bias) `[T, H]` of x, residual `[T, H]` and weight, bias `[H]`.

    The exact GELU, to float32's accuracy. Contiguous, one dtype of float32, float16, bfloat16, one device; 3 T H e
    bytes. Raises ValueError for others.
    """
    check_norm(x, residual, weight=weight, bias=bias)
    out = torch.empty_like(x)
    if out.numel():
        from labllm.kernels import add_norm as kernel

        tile = whole_rows(*x.shape, this_machine(x.device.type))
        kernel.add_layer_norm_gelu(out, x, residual, weight, bias, eps, tile.rows, tile.num_warps)
    return out


def _launch(
    out: Tensor, total: Tensor, x: Tensor, residual: Tensor, weight: Tensor, eps: float, overlap: bool = False
) -> None:
    if x.numel():
        from labllm.kernels import add_norm as kernel

        tile = whole_rows(*x.shape, this_machine(x.device.type))
        overlap = overlap and can_start_early(x.device.type)
        kernel.add_rms_norm(out, total, x, residual, weight, eps, tile.rows, tile.num_warps, overlap)
