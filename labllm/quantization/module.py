"""QuantizedLinear: a torch module that keeps a weight as it is stored and multiplies by a route of its choice.

A route turns the stored weight into a function once, before the first token: it may convert to a kernel's layout, keep
a 16-bit copy, or nothing. So the same model is read by the reference route in a test and by a kernel in use. Cost: the
stored bytes, and whatever the route keeps besides. Invariant: state_dict holds the stored tensors and no others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labllm.quantization.activations import float8_rows, float8_tensor, int8_rows
from labllm.quantization.float8 import Float8Weight
from labllm.quantization.packed import QuantizedWeight

Weight = QuantizedWeight | Float8Weight
Multiply = Callable[[Tensor], Tensor]
"""x [T, K] -> x W^T [T, N] in x's dtype."""
Inside = Callable[..., Tensor]
"""(x [1, K], gain=None, eps=1e-6, residual=None, gated=False) -> the product with its neighbours in one launch, [1, N]:
RMSNorm by `gain` before it, SiLU(gate) * up of its halves or `residual` behind it."""
Route = Callable[[Weight, torch.dtype], Multiply]
"""(stored weight, dtype of the activations) -> how to multiply."""


def dequantized(weight: Weight, dtype: torch.dtype) -> Multiply:
    """Dequantise at every call, then multiply: the least memory and the most work."""
    return lambda x: F.linear(x, weight.dequantize(dtype))


def kept(weight: Weight, dtype: torch.dtype) -> Multiply:
    """Dequantise once and keep the result: for judging quality, where memory is not the question."""
    whole = weight.dequantize(dtype)
    return lambda x: F.linear(x, whole)


def int8_inputs(weight: Weight, dtype: torch.dtype) -> Multiply:
    """W8A8 or W4A8 as arithmetic: inputs rounded to INT8 with a scale a token, then multiplied in `dtype`."""
    return _with_inputs(weight, dtype, int8_rows)


def float8_inputs(weight: Weight, dtype: torch.dtype) -> Multiply:
    """FP8 as arithmetic: inputs rounded to E4M3 with the granularity of the weight's scales."""
    return _with_inputs(weight, dtype, float8_tensor if len(weight.scales) == 1 else float8_rows)


def _with_inputs(weight: Weight, dtype: torch.dtype, quantize: Callable[[Tensor], tuple[Tensor, Tensor]]) -> Multiply:
    whole = weight.dequantize(dtype)

    def multiply(x: Tensor) -> Tensor:
        values, scales = quantize(x)
        return F.linear((values.float() * scales).to(dtype), whole)

    return multiply


def inside(multiply: Multiply, x: Tensor, bias: Tensor | None) -> Inside | None:
    """`multiply.inside(x, bias)` of a route that has such a product, else None."""
    offered = getattr(multiply, "inside", None)
    return None if offered is None else offered(x, bias)


class QuantizedLinear(nn.Module):
    """x [T, K] -> x W^T + bias [T, N] with W stored as QuantizedWeight or Float8Weight; for inference."""

    def __init__(self, weight: Weight, bias: Tensor | None = None, route: Route = dequantized) -> None:
        super().__init__()
        self._record, self.route = weight, route
        for field in fields(weight):
            value = getattr(weight, field.name)
            if isinstance(value, Tensor):
                self.register_buffer(field.name, value)
        self.register_buffer("bias", bias)
        self._prepared: tuple[tuple[torch.dtype, torch.device], Multiply] | None = None

    @property
    def weight(self) -> Weight:
        """The stored weight, on the device where the module is now."""
        return replace(self._record, **{name: t for name, t in self._buffers.items() if name != "bias"})

    @property
    def nbytes(self) -> int:
        """Bytes of the stored weight, and of the bias."""
        return self.weight.nbytes + (0 if self.bias is None else self.bias.nbytes)

    def with_route(self, route: Route) -> QuantizedLinear:
        """The same stored tensors, multiplied another way; nothing is copied."""
        return QuantizedLinear(self.weight, self.bias, route)

    def forward(self, x: Tensor) -> Tensor:
        """[T, K] -> [T, N]."""
        out = self._multiply(x)(x)
        return out if self.bias is None else out + self.bias.to(out.dtype)

    def inside(self, x: Tensor) -> Inside | None:
        """How this linear multiplies x [1, K] with its neighbours in one launch; None where its route cannot."""
        return inside(self._multiply(x), x, self.bias)

    def _multiply(self, x: Tensor) -> Multiply:
        key = (x.dtype, x.device)
        if self._prepared is None or self._prepared[0] != key:
            self._prepared = key, self.route(self.weight, x.dtype)
        return self._prepared[1]

    def extra_repr(self) -> str:
        """As torch's Linear, with the bits."""
        outputs, inputs = self.weight.shape
        return f"in_features={inputs}, out_features={outputs}, bits_per_weight={self.weight.bits_per_weight:.2f}"
