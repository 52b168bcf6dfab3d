"""What the INT4 kernels take, said once for all of them: ValueError in a sentence for the rest."""

from __future__ import annotations

import torch
from torch import Tensor

from labllm.hardware import can, this_machine, triton_mode
from labllm.quantization.kernel_layout import KernelWeight


def compiles(device: str, oldest: tuple[int, int], before: tuple[int, int] | None = None) -> bool:
    """Whether Triton compiles for `device`, whose compute capability is `oldest` or newer, and older than `before`."""
    capability = this_machine(device).capability
    if capability is None or capability < oldest or (before is not None and capability >= before):
        return False
    return triton_mode(device) == "compiled"


def checked(x: Tensor, weight: KernelWeight) -> Tensor:
    """x in the order of the weight's columns, its rows of stride 1 and 16-byte aligned; or ValueError."""
    check_x(x, weight.shape)
    check_kernel(x.dtype, x.device)
    if x.device.type != weight.words.device.type:
        raise ValueError(f"x and weight must be on one device; got {x.device} and {weight.words.device}")
    if weight.order is not None:
        return x[:, weight.order]
    return x if x.stride(1) == 1 and x.stride(0) % 8 == 0 else x.contiguous()


def check_x(x: Tensor, shape: tuple[int, int]) -> None:
    """ValueError unless x is [M, K] for a weight [N, K]."""
    if x.dim() != 2 or x.shape[1] != shape[1]:
        raise ValueError(f"x must be [M, {shape[1]}] for a [{shape[0]}, {shape[1]}] weight; got {list(x.shape)}")


def check_kernel(dtype: torch.dtype, device: torch.device) -> None:
    """ValueError where no kernel multiplies `dtype` on `device`."""
    if dtype not in (torch.float16, torch.bfloat16):
        raise ValueError(f"the INT4 kernels take float16 and bfloat16, got {dtype}")
    if not (answer := can("triton", device.type)):
        raise ValueError(f"an INT4 kernel cannot run on {device}: {answer.reason}")
    if dtype == torch.bfloat16 and device.type == "cpu":
        raise ValueError("Triton's interpreter computes wrong results in bfloat16: on a CPU give the kernel float16")
