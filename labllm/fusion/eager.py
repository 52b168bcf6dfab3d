"""The unfused rungs: one operation a launch, each result written to memory and read again by the next.

Nothing here is wrong: this is how the formulas read, and what a framework runs when it is given them. Every operation
costs a launch and a pass over memory, which the docstrings count with T rows, H columns and e bytes an element. The
sums of a norm are taken in float32, as checkpoints are trained. It loses wherever memory sets the pace; where one GEMM
takes most of the time, nothing here is worth fusing.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from labllm.quantization.activations import float8_rows, int8_rows

ACTIVATIONS = {"silu": F.silu, "gelu": F.gelu}


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """RMSNorm(x) * weight of x `[..., H]` and weight `[H]`: 7 e bytes an element in float32, 4 e + 28 in half."""
    wide = x.float()
    scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    return (wide * scale).to(x.dtype) * weight


def add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """(RMSNorm(x + residual) * weight, x + residual) of x, residual `[T, H]` and weight `[H]`.

    Moves 10 T H e bytes in float32; in half precision 7 T H e and 28 T H of float32 intermediates.
    """
    total = x + residual
    return rms_norm(total, weight, eps), total


def library_add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """As `add_rms_norm`, by the library's norm, one launch: 5 T H e bytes."""
    total = x + residual
    return F.rms_norm(total, weight.shape, weight, eps), total


def add_rms_norm_quantize(
    x: Tensor, residual: Tensor, weight: Tensor, dtype: torch.dtype, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """`add_rms_norm`, its norm then quantised by rows: (codes `[T, H]`, scales `[T, 1]`, x + residual `[T, H]`).

    Quantising moves 33 T H bytes from float32, 2 T H e + 41 T H from half precision, and 8 T H more to int8.
    """
    norm, total = add_rms_norm(x, residual, weight, eps)
    return *(int8_rows if dtype == torch.int8 else float8_rows)(norm), total


def add_layer_norm_gelu(x: Tensor, residual: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    """GELU(LayerNorm(x + residual) * weight + bias) `[T, H]` of x, residual `[T, H]` and weight, bias `[H]`.

    Three launches of the library, 7 T H e bytes: the sum and the norm are written and read again.
    """
    return F.gelu(F.layer_norm(x + residual, weight.shape, weight, bias, eps))


def gated(gate_up: Tensor, activation: str) -> Tensor:
    """act(gate) * up `[T, I]` of gate_up `[T, 2 I]`, gates first, by activation 'silu' (SwiGLU) or 'gelu' (GeGLU).

    5 T I e bytes in two launches: the activated gate is written and read again.
    """
    gate, up = gate_up.chunk(2, dim=-1)
    return ACTIVATIONS[activation](gate) * up
