"""Tens of tokens times INT4 weights on Hopper: kernels/int4_wide.py, checked. Captured CUDA graphs may hold it."""

from __future__ import annotations

import torch
from torch import Tensor

from labllm.hardware import can_start_early, this_machine
from labllm.quantization.int4_checks import checked, compiles
from labllm.quantization.kernel_layout import KernelWeight
from labllm.quantization.tiles import WideTile, wide_tile


def why_not_wide(inputs: int, group_size: int, device: str) -> str | None:
    """Why `wide` does not multiply by weights of so many inputs in such groups on `device`; None where it does."""
    if group_size % 64 or inputs % 128:
        return f"it takes K in multiples of 128 and groups of multiples of 64; got {inputs} in groups of {group_size}"
    if not compiles(device, (9, 0), (10, 0)):
        return "it needs Triton's compiler and a GPU of compute capability 9.x"
    return None


def wide(x: Tensor, weight: KernelWeight, tile: WideTile | None = None) -> Tensor:
    """x [M, K] float16 or bfloat16 -> x W^T [M, N], K a multiple of 128, groups of multiples of 64.

    Compute capability 9.x. Raises ValueError for others.
    """
    x = checked(x, weight)
    if reason := why_not_wide(x.shape[1], weight.group_size, x.device.type):
        raise ValueError(f"the product of hundreds of tokens cannot run on {x.device}: {reason}")
    (tokens, inputs), outputs = x.shape, weight.shape[0]
    y = x.new_empty(tokens, outputs)
    if not tokens:
        return y
    from labllm.kernels import int4_wide as kernel

    x = x if x.data_ptr() % 16 == 0 else x.clone()
    tile = tile or wide_tile(tokens, outputs, inputs, this_machine(x.device.type).cores)
    steps = inputs // 128
    split = -(-steps // -(-steps // tile.split))
    partial = torch.empty(split, tokens, outputs, dtype=torch.float32, device=x.device) if split > 1 else None
    kernel.int4_wide(
        y, partial, x, weight.words, weight.scales, weight.zeros, weight.group_size, tile.block_m, split,
        tile.num_warps, tile.num_stages, can_start_early(x.device.type),
    )  # fmt: skip
    return y
