"""Weights and tokens for tests of INT4 products, their answer in float64, and how far an answer is from it."""

from __future__ import annotations

import torch
from torch import Tensor

from labllm.bench import TOLERANCE, relative_error
from labllm.hardware import default_device
from labllm.quantization.packed import QuantizedWeight
from labllm.quantization.rtn import round_to_nearest

DEVICE = default_device()


def packed(n: int, k: int, group: int = 128, symmetric: bool = True, **more: torch.dtype) -> QuantizedWeight:
    """A normal weight [n, k] in four bits; more: as `round_to_nearest` takes it."""
    weight = torch.randn(n, k, generator=torch.Generator().manual_seed(n + k)).to(DEVICE) * k**-0.5
    return round_to_nearest(weight, 4, group, symmetric, **more)


def numbers(*shape: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    """Normal numbers, the same for one shape."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).to(DEVICE, dtype)


def product(x: Tensor, weight: QuantizedWeight) -> Tensor:
    """x W^T in float64, W as it is stored."""
    return x.double() @ weight.dequantize(torch.float64).T


def error(out: Tensor, reference: Tensor) -> float:
    """The relative error of `out`, in tolerances of its dtype."""
    return relative_error(out, reference) / TOLERANCE[str(out.dtype).removeprefix("torch.")]
