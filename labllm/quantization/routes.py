"""Routes that make quantised weights fast: each turns a stored weight, once, into a function of the activations.

`fastest` takes the best that there is for the weight and its device; a weight for which there is no kernel is
dequantised at each call, which is right everywhere and fast nowhere. The kernel's copy of the weight is all that a
route keeps.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from labllm.hardware import triton_mode
from labllm.quantization import eight_bits, int4, torch_int8
from labllm.quantization.float8 import Float8Weight
from labllm.quantization.kernel_layout import KernelWeight, kernel_layout, layout_refusal
from labllm.quantization.module import Inside, Multiply, Route, Weight, dequantized
from labllm.quantization.one_token import one_token, why_not_one_token
from labllm.quantization.packed import QuantizedWeight
from labllm.quantization.torch_int4 import refusal, torch_linear, torch_weight


@dataclass(frozen=True)
class Int4Product:
    """x -> x W^T by the kernel that is fastest for x; and one token with its neighbours."""

    weight: KernelWeight

    def __call__(self, x: Tensor) -> Tensor:
        """[T, K] -> [T, N]."""
        return int4.linear(x, self.weight)

    def inside(self, x: Tensor, bias: Tensor | None) -> Inside | None:
        """The product of x [1, K] with its neighbours in one launch; None for what the kernel does not take."""
        weight = self.weight
        fits = x.shape[0] == 1 and x.dtype == torch.bfloat16 and weight.order is None and weight.shape[0] % 32 == 0
        if not fits or why_not_one_token(weight.shape[1], weight.group_size, x.device.type):
            return None
        return partial(one_token, weight=weight, bias=None if bias is None else bias.to(x.dtype))


def triton_int4(weight: Weight, dtype: torch.dtype) -> Multiply:
    """Our kernels for 4 bits, in float16 or bfloat16. Raises ValueError for other weights."""
    return Int4Product(kernel_layout(_packed(weight)))


def torch_int4(weight: Weight, dtype: torch.dtype) -> Multiply:
    """torch's operator for 4 bits, which multiplies in bfloat16. Raises ValueError for other weights."""
    return partial(torch_linear, weight=torch_weight(_packed(weight)))


def int8(weight: Weight, dtype: torch.dtype) -> Multiply:
    """W8A8 through the integer units: our kernel where Triton compiles, else torch's product (a T4, a CPU).

    Raises ValueError for weights that are not symmetric, with one scale a row.
    """
    stored = _packed(weight)
    compiled = triton_mode(stored.qweight.device.type) == "compiled"
    return partial(
        eight_bits.int8_linear if compiled else torch_int8.int8_linear, weight=eight_bits.int8_weight(stored)
    )


def float8(weight: Weight, dtype: torch.dtype) -> Multiply:
    """FP8 through torch's scaled matrix multiplication. Raises ValueError for other weights."""
    if not isinstance(weight, Float8Weight):
        raise ValueError(f"the FP8 route takes a Float8Weight; got {type(weight).__name__}")
    return partial(eight_bits.float8_linear, weight=weight)


def fastest(weight: Weight, dtype: torch.dtype) -> Multiply:
    """The fastest way for this weight where it lies, or `dequantized`. Only weights are rounded further, never x,
    except that a CPU's INT4 operator multiplies in bfloat16.
    """
    return route_for(weight, dtype)(weight, dtype)


def route_for(weight: Weight, dtype: torch.dtype) -> Route:
    """The route that `fastest` takes."""
    if isinstance(weight, QuantizedWeight) and weight.bits == 4:
        device = weight.qweight.device.type
        compiled = triton_mode(device) == "compiled" and dtype in (torch.float16, torch.bfloat16)
        if compiled and layout_refusal(weight) is None:
            return triton_int4
        if device == "cpu" and refusal(weight.shape, weight.bits, weight.group_size, device) is None:
            return torch_int4
    return dequantized


def _packed(weight: Weight) -> QuantizedWeight:
    if not isinstance(weight, QuantizedWeight):
        raise ValueError(f"an integer route takes a QuantizedWeight; got {type(weight).__name__}")
    return weight
