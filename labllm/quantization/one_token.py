"""One token times INT4 weights, with its neighbours in the same launch: kernels/int4_one_token.py, checked.

Vertical fusion as for 16-bit weights (labllm.fusion.skinny): RMSNorm before, bias, SiLU gate and residual add behind
the product of one token cost neither a launch nor a pass. Captured CUDA graphs may hold it, and it keeps no state.
"""

from __future__ import annotations

import torch
from torch import Tensor

from labllm.hardware import can_start_early, this_machine
from labllm.quantization.int4_checks import checked, compiles
from labllm.quantization.kernel_layout import KernelWeight
from labllm.quantization.tiles import TokenTile, token_tile

MOST_INPUTS = 32768  # x then takes 64 KB of shared memory
OLDEST = (8, 0)


def why_not_one_token(inputs: int, group_size: int, device: str) -> str | None:
    """Why `one_token` does not multiply by weights of so many inputs in such groups on `device`; None where it does."""
    if inputs > MOST_INPUTS:
        return f"it keeps x in shared memory, at most {MOST_INPUTS} numbers; got {inputs}"
    if group_size % 64:
        return f"it takes groups of multiples of 64; got {group_size}"
    if not compiles(device, OLDEST):
        return "it needs Triton's compiler and a GPU of compute capability 8.0 or newer"
    return None


def one_token(
    x: Tensor,
    weight: KernelWeight,
    bias: Tensor | None = None,
    *,
    gain: Tensor | None = None,
    eps: float = 1e-6,
    residual: Tensor | None = None,
    gated: bool = False,
    tile: TokenTile | None = None,
) -> Tensor:
    """RMSNorm(x) W^T + bias, gated, plus residual, for x [1, K] float16 or bfloat16 -> [1, N] in x's dtype.

    W [N, K], or [2 N, K] with gates first where `gated`, N then a multiple of 16: SiLU(gate) * up. gain [K] is the
    norm's weight (None: no norm), in bfloat16; bias as the rows of W, residual [1, N]. Sums are float32. Compute
    capability 8.0 or newer. Raises ValueError for others.
    """
    x = checked(x, weight)
    rows, inputs = weight.shape
    outputs = rows // 2 if gated else rows
    if x.shape[0] != 1:
        raise ValueError(f"the product of one token takes x [1, K]; got {x.shape[0]} rows")
    if reason := why_not_one_token(inputs, weight.group_size, x.device.type):
        raise ValueError(f"the product of one token cannot run on {x.device}: {reason}")
    if gated and rows % 32:
        raise ValueError(f"gates and ups must be multiples of 16 rows each; got {rows} rows in all")
    if gain is not None and (x.dtype != torch.bfloat16 or weight.order is not None):
        raise ValueError(f"a norm is drawn in for bfloat16 and inputs in order; got {x.dtype}")
    wanted = {"gain": (gain, (inputs,)), "bias": (bias, (rows,)), "residual": (residual, (1, outputs))}
    for name, (tensor, shape) in wanted.items():
        if tensor is not None and (tensor.shape != torch.Size(shape) or tensor.dtype != x.dtype):
            raise ValueError(f"{name} must be {list(shape)} {x.dtype}; got {list(tensor.shape)} {tensor.dtype}")
        if tensor is not None and not tensor.is_contiguous():
            raise ValueError(f"{name} must be contiguous")
    from labllm.kernels import int4_one_token as kernel

    out = x.new_empty(1, outputs)
    tile = tile or token_tile(outputs, inputs, gated, this_machine(x.device.type))
    kernel.int4_one_token(
        out, x, weight.words, weight.scales, weight.zeros, weight.group_size, gain, eps, gated, bias, residual, *tile,
        can_start_early(x.device.type),
    )  # fmt: skip
    return out
