"""Residual add, LayerNorm and GELU by kernels/cuda/add_layer_norm_gelu.cu: what `fusion.add_layer_norm_gelu` computes.

A block takes a row and each of its 256 threads keeps PIECES times 8 elements, so the file is compiled once for each
number of pieces that a row length needs.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from labllm.bench import CannotRun
from labllm.cuda.driver import load
from labllm.cuda.multiply import DTYPES, architecture
from labllm.cuda.nvcc import build
from labllm.hardware import this_machine

FILE = "add_layer_norm_gelu"
THREADS, ELEMENTS = 256, 8
MAX_PIECES = 8


def pieces(hidden: int) -> int:
    """Pieces of 8 elements that a thread keeps of a row of `hidden`; ValueError for rows that do not fit."""
    most = THREADS * ELEMENTS * MAX_PIECES
    if hidden % ELEMENTS or not 0 < hidden <= most:
        raise ValueError(f"a row must have a multiple of {ELEMENTS} elements, {ELEMENTS} to {most}, got {hidden}")
    return math.ceil(hidden / (THREADS * ELEMENTS))


def add_layer_norm_gelu(x: Tensor, residual: Tensor, weight: Tensor, bias: Tensor, eps: float = 1e-5) -> Tensor:
    """GELU(LayerNorm(x + residual) * weight + bias) `[T, H]` of x, residual `[T, H]` and weight, bias `[H]`.

    Contiguous, float16 or bfloat16, on one CUDA device, H a multiple of 8 up to 16384; 3 T H e bytes. Raises ValueError
    for others, CannotRun where there is no nvcc.
    """
    _check(x, residual, weight, bias)
    count = pieces(x.shape[1])
    out = torch.empty_like(x)
    if out.numel():
        capability = this_machine(x.device.type).capability
        if capability is None or capability < (7, 5):
            raise CannotRun("the CUDA C++ kernels need compute capability 7.5 or newer")
        built = build(FILE, architecture(capability), bfloat16=x.dtype == torch.bfloat16, PIECES=count)
        kernel = load(built.cubin, FILE, 0, x.device.index or 0)
        kernel.launch((x.shape[0],), (THREADS,), 0, out, x, residual, weight, bias, x.shape[1], float(eps))
    return out


def _check(x: Tensor, residual: Tensor, weight: Tensor, bias: Tensor) -> None:
    if x.dim() != 2 or residual.shape != x.shape:
        raise ValueError(f"x and residual must both be [T, H], got {list(x.shape)} and {list(residual.shape)}")
    for name, tensor in {"weight": weight, "bias": bias}.items():
        if tensor.shape != x.shape[1:]:
            raise ValueError(f"{name} must be [{x.shape[1]}], one element a column of x, got {list(tensor.shape)}")
    tensors = {"x": x, "residual": residual, "weight": weight, "bias": bias}
    for name, tensor in tensors.items():
        if tensor.dtype not in DTYPES or tensor.dtype != x.dtype:
            raise ValueError(f"all tensors must be float16, or all bfloat16; {name} is {tensor.dtype}")
    for name, tensor in tensors.items():
        if not tensor.is_contiguous():
            raise ValueError(f"{name} must be contiguous, got strides {tensor.stride()}: call .contiguous() first")
        if tensor.device.type != "cuda" or tensor.device != x.device:
            raise ValueError(f"a CUDA C++ kernel takes tensors on one NVIDIA GPU; {name} is on {tensor.device}")
