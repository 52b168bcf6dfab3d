"""What the fused kernels refuse, each in a sentence that says what would be right."""

from __future__ import annotations

import torch
from torch import Tensor

from labllm.hardware import can, triton_mode

MAX_HIDDEN = 32768


def check_norm(x: Tensor, residual: Tensor, **per_column: Tensor) -> None:
    """Refuse x and residual that are not two alike `[T, H]`, or weights that are not `[H]` beside them: ValueError."""
    if x.dim() != 2 or residual.shape != x.shape:
        raise ValueError(f"x and residual must both be [T, H], got {list(x.shape)} and {list(residual.shape)}")
    if not 1 <= x.shape[1] <= MAX_HIDDEN:
        raise ValueError(f"a row must have 1 to {MAX_HIDDEN} elements, which one program holds, got {x.shape[1]}")
    for name, tensor in per_column.items():
        if tensor.shape != x.shape[1:]:
            raise ValueError(f"{name} must be [{x.shape[1]}], one element a column of x, got {list(tensor.shape)}")
    check_kernel(x=x, residual=residual, **per_column)


def check_gate_up(gate_up: Tensor) -> None:
    """Refuse gate_up that is not `[T, 2 I]`: ValueError."""
    if gate_up.dim() != 2 or gate_up.shape[1] % 2 or not gate_up.shape[1]:
        raise ValueError(f"gate_up must be [T, 2 I], gates first in a row, got {list(gate_up.shape)}")
    check_kernel(gate_up=gate_up)


def check_weight(x: Tensor, weight: Tensor, gated: bool) -> int:
    """N of a weight `[N, K]`, or `[2 N, K]` where `gated`, for x `[T, K]`; ValueError for others."""
    if weight.dim() != 2 or weight.shape[1] != x.shape[1] or not weight.numel() or (gated and len(weight) % 2):
        raise ValueError(
            f"weight must be [{'2 N' if gated else 'N'}, {x.shape[1]}], its rows as long as those of x, "
            f"got {list(weight.shape)}"
        )
    return len(weight) // 2 if gated else len(weight)


def check_kernel(**tensors: Tensor) -> None:
    """Refuse strides, dtypes and devices that the kernels do not take: ValueError."""
    for name, tensor in tensors.items():
        if not tensor.is_contiguous():
            raise ValueError(f"{name} must be contiguous, got strides {tensor.stride()}: call .contiguous() first")
    check_dtype(**tensors)


def check_eight_bits(dtype: torch.dtype, device: str) -> None:
    """Refuse to quantise to what is not int8 or float8_e4m3fn, or to float8 where it cannot be written: ValueError."""
    if dtype not in (torch.int8, torch.float8_e4m3fn):
        raise ValueError(f"the fused kernels quantise to torch.int8 and torch.float8_e4m3fn, got {dtype}")
    if dtype == torch.float8_e4m3fn and (reason := no_float8(device)):
        raise ValueError(reason)


def no_float8(device: str) -> str:
    """Why a Triton kernel on `device` cannot write float8, or an empty string."""
    if triton_mode(device) == "interpreted":
        return "Triton's interpreter halves numbers that it rounds up in float8: on a CPU choose int8 or a torch rung"
    return can("fp8", device).reason


def check_dtype(**tensors: Tensor) -> None:
    """Refuse dtypes and devices that the kernels do not take, or that differ: ValueError."""
    first, *_ = tensors.values()
    if first.dtype not in (torch.float32, torch.float16, torch.bfloat16):
        raise ValueError(f"the fused kernels take float32, float16 and bfloat16, got {first.dtype}")
    for name, tensor in tensors.items():
        if tensor.dtype != first.dtype or tensor.device != first.device:
            raise ValueError(
                f"all tensors must share dtype and device, got {first.dtype} on {first.device} and "
                f"{name} {tensor.dtype} on {tensor.device}"
            )
    if not (answer := can("triton", first.device.type)):
        raise ValueError(f"a fused kernel cannot run on {first.device}: {answer.reason}")
    if first.dtype == torch.bfloat16 and triton_mode(first.device.type) == "interpreted":
        raise ValueError(
            "Triton's interpreter computes wrong results in bfloat16: on a CPU give the kernel float16 or float32"
        )
