"""Quantising what a linear is given: activations in INT8 or FP8, with scales found as they come (dynamic).

    INT8       scale = max|x| / 127,  x ~ scale * round(x / scale)
    FP8 E4M3   scale = max|x| / 448,  x ~ scale * float8(x / scale)

A scale a row (a token) or one for the tensor. INT8 has even steps, so a row's small values share the step of its
largest; E4M3 has 3 bits of mantissa and steps that shrink with the value, so outliers cost it little and everything
costs it up to 1/16. Micikevicius et al. 2022, arXiv:2209.05433. Cost: two passes over x, or none where a kernel
before it does this on the way. It loses at small batches, where activations are not what is slow.
"""

from __future__ import annotations

import torch
from torch import Tensor

INT8_MAX = 127
FLOAT8 = torch.float8_e4m3fn
FLOAT8_MAX = 448.0


def int8_rows(x: Tensor) -> tuple[Tensor, Tensor]:
    """x [T, K] -> int8 [T, K] and scales [T, 1] float32; a row of zeros has the scale 1."""
    scales = _scales(x.float().abs().amax(-1, keepdim=True), INT8_MAX)
    return torch.round(x.float() / scales).clamp_(-INT8_MAX, INT8_MAX).to(torch.int8), scales


def float8_rows(x: Tensor) -> tuple[Tensor, Tensor]:
    """x [T, K] -> float8_e4m3fn [T, K] and scales [T, 1] float32."""
    scales = _scales(x.float().abs().amax(-1, keepdim=True), FLOAT8_MAX)
    return _float8(x, scales), scales


def float8_tensor(x: Tensor) -> tuple[Tensor, Tensor]:
    """x [T, K] -> float8_e4m3fn [T, K] and one scale [1, 1] float32."""
    scales = _scales(x.float().abs().amax().view(1, 1) if x.numel() else x.new_zeros(1, 1).float(), FLOAT8_MAX)
    return _float8(x, scales), scales


def _scales(largest: Tensor, top: float) -> Tensor:
    return torch.where(largest > 0, largest / top, torch.ones_like(largest))


def _float8(x: Tensor, scales: Tensor) -> Tensor:
    return (x.float() / scales).clamp_(-FLOAT8_MAX, FLOAT8_MAX).to(FLOAT8)
