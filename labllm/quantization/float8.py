"""Weights in FP8 (E4M3): eight bits with a mantissa, one scale a row or one for the matrix.

    weight[n, k] = value[n, k] * scale[n],   value in float8_e4m3fn, at most 448

Cost: 8 bits a weight and a scale a row. Invariant: a value that E4M3 holds comes back as it was. Its error is
relative, up to 1/16 of each value, whatever the largest of its row; INT8's is absolute, so INT8 is nearer where a row
has no outlier.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from labllm.quantization.activations import FLOAT8, float8_rows, float8_tensor
from labllm.quantization.rtn import PER_CHANNEL, PER_TENSOR, Granularity, group_of


@dataclass(frozen=True)
class Float8Weight:
    """One matrix [N, K]: values float8_e4m3fn [N, K], scales float32 [N, 1] or [1, 1]. Raises ValueError for others."""

    values: Tensor
    scales: Tensor

    def __post_init__(self) -> None:
        if self.values.dtype != FLOAT8 or self.values.dim() != 2:
            raise ValueError(f"values must be {FLOAT8} [N, K]; got {self.values.dtype} {list(self.values.shape)}.")
        if tuple(self.scales.shape) not in {(self.values.shape[0], 1), (1, 1)}:
            raise ValueError(f"scales must be [{self.values.shape[0]}, 1] or [1, 1]; got {list(self.scales.shape)}.")

    @property
    def shape(self) -> tuple[int, int]:
        """(N, K)."""
        return self.values.shape[0], self.values.shape[1]

    @property
    def nbytes(self) -> int:
        """Bytes of both tensors."""
        return self.values.nbytes + self.scales.nbytes

    @property
    def bits_per_weight(self) -> float:
        """Everything stored in bits a weight."""
        return 8 * self.nbytes / math.prod(self.shape)

    def dequantize(self, dtype: torch.dtype = torch.float32) -> Tensor:
        """The weight that is multiplied, [N, K], rounded once to `dtype`."""
        exact = torch.float64 if dtype == torch.float64 else torch.float32
        return (self.values.to(exact) * self.scales.to(exact)).to(dtype)


def float8_weight(weight: Tensor, granularity: Granularity = PER_CHANNEL) -> Float8Weight:
    """weight [N, K] -> FP8 with a scale a 'channel' or one a 'tensor'. Raises ValueError for groups."""
    group_of(weight, granularity)
    if granularity not in (PER_CHANNEL, PER_TENSOR):
        raise ValueError(f"FP8 weights have one scale a 'channel' or a 'tensor'; got groups of {granularity}.")
    return Float8Weight(*(float8_rows(weight) if granularity == PER_CHANNEL else float8_tensor(weight)))
