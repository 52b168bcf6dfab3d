"""Up to four tokens times INT4 weights, with their neighbours in the same launch: kernels/int4_few.py, checked.

Vertical fusion as for 16-bit weights (labllm.fusion.skinny): RMSNorm before, bias, SiLU gate and residual add behind
the product of one token cost neither a launch nor a pass. Captured CUDA graphs may hold it, and it keeps no state.
"""

from __future__ import annotations

import torch
from torch import Tensor

from labllm.hardware import can_start_early
from labllm.quantization.int4_checks import checked, compiles
from labllm.quantization.kernel_layout import KernelWeight
from labllm.quantization.tiles import FewTile, few_tile

MOST_TOKENS = 4
OLDEST = (8, 0)


def why_not_few(tokens: int, group_size: int, device: str) -> str | None:
    """Why `few` does not multiply so many tokens by weights in such groups on `device`; None where it does."""
    if not 1 <= tokens <= MOST_TOKENS:
        return f"it multiplies 1 to {MOST_TOKENS} tokens; got {tokens}"
    if group_size % 64:
        return f"it takes groups of multiples of 64; got {group_size}"
    if not compiles(device, OLDEST):
        return "it needs Triton's compiler and a GPU of compute capability 8.0 or newer"
    return None


def few(
    x: Tensor,
    weight: KernelWeight,
    bias: Tensor | None = None,
    *,
    gain: Tensor | None = None,
    eps: float = 1e-6,
    residual: Tensor | None = None,
    gated: bool = False,
    tile: FewTile | None = None,
) -> Tensor:
    """RMSNorm(x) W^T + bias, gated, plus residual, for x [M, K] float16 or bfloat16 with M in 1 .. 4 -> [M, N].

    W [N, K], or [2 N, K] with gates first where `gated`, N then a multiple of 16: SiLU(gate) * up. gain [K] is the
    norm's weight (None: no norm), for one token in bfloat16; bias as the rows of W, residual [M, N]. Sums are float32.
    Compute capability 8.0 or newer. Raises ValueError for others.
    """
    x = checked(x, weight)
    rows, inputs = weight.shape
    outputs = rows // 2 if gated else rows
    if reason := why_not_few(x.shape[0], weight.group_size, x.device.type):
        raise ValueError(f"the product of a few tokens cannot run on {x.device}: {reason}")
    if gated and rows % 32:
        raise ValueError(f"gates and ups must be multiples of 16 rows each; got {rows} rows in all")
    if gain is not None and (x.shape[0] != 1 or x.dtype != torch.bfloat16 or weight.order is not None):
        raise ValueError(f"a norm is drawn in for one token in bfloat16 and inputs in order; got {list(x.shape)}")
    wanted = {"gain": (gain, (inputs,)), "bias": (bias, (rows,)), "residual": (residual, (x.shape[0], outputs))}
    for name, (tensor, shape) in wanted.items():
        if tensor is not None and (tensor.shape != torch.Size(shape) or tensor.dtype != x.dtype):
            raise ValueError(f"{name} must be {list(shape)} {x.dtype}; got {list(tensor.shape)} {tensor.dtype}")
        if tensor is not None and not tensor.is_contiguous():
            raise ValueError(f"{name} must be contiguous")
    from labllm.kernels import int4_few as kernel

    out = x.new_empty(x.shape[0], outputs)
    tile = tile or few_tile(x.shape[0], inputs, gated)
    kernel.int4_few(
        out, x, weight.words, weight.scales, weight.zeros, weight.group_size, gain, eps, gated, bias, residual, *tile,
        can_start_early(x.device.type),
    )  # fmt: skip
    return out
