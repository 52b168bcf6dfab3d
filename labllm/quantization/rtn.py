"""Round to nearest: each weight goes to the closest of 2^bits evenly spaced values of its group.

    symmetric    step = 2 max|w| / (2^bits - 1),          zero point 2^(bits - 1)
    asymmetric   step = (max w - min w) / (2^bits - 1),   zero point round(-min w / step), zero always inside

Both leave an error of at most half a step a weight (plus, asymmetric, what rounding the zero point costs). The step
follows the largest weight of a group, so one outlier coarsens all its neighbours: smaller groups confine it. Nagel
et al. 2021, arXiv:2106.08295, section 2. Cost: one pass over the weight, no data. It loses below 4 bits: the errors
of a row's weights are independent, and nothing puts their sum right.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from labllm.quantization.packed import QuantizedWeight, pack

PER_TENSOR, PER_CHANNEL = "tensor", "channel"
Granularity = int | str
"""A group size, or 'channel' (one scale an output row), or 'tensor' (one scale in all)."""


@dataclass(frozen=True)
class Grid:
    """The values that weights may take: (code - zero) * scale for codes 0 .. 2^bits - 1.

    scale, zero [..., 1], broadcast over the weights of a group; zero holds whole numbers in scale's dtype.
    """

    scale: Tensor
    zero: Tensor
    bits: int

    def codes(self, values: Tensor) -> Tensor:
        """The nearest code of each value, whole numbers in its dtype, same shape."""
        return (torch.round(values / self.scale) + self.zero).clamp_(0, 2**self.bits - 1)

    def values(self, codes: Tensor) -> Tensor:
        """What codes stand for."""
        return (codes - self.zero) * self.scale

    def nearest(self, values: Tensor) -> Tensor:
        """Each value replaced by the nearest one on the grid."""
        return self.values(self.codes(values))


def grid_of(groups: Tensor, bits: int, symmetric: bool, dtype: torch.dtype | None = None) -> Grid:
    """The grid that covers groups [..., G], one for each; scales are rounded to `dtype`, in which they will be stored.

    A group of zeros gets the scale 1, so that nothing divides by zero and zeros stay exact.
    """
    steps = 2**bits - 1
    if symmetric:
        scale = 2 * groups.abs().amax(-1, keepdim=True) / steps
    else:
        low, high = groups.amin(-1, keepdim=True).clamp(max=0), groups.amax(-1, keepdim=True).clamp(min=0)
        scale = (high - low) / steps
    if dtype is not None:
        scale = scale.clamp(max=torch.finfo(dtype).max).to(dtype).to(groups.dtype)
    scale = torch.where(scale > 0, scale, torch.ones_like(scale))
    middle = torch.full_like(scale, 2 ** (bits - 1))
    zero = middle if symmetric else torch.round(-low / scale).clamp_(0, steps)
    return Grid(scale, zero, bits)


def round_to_nearest(
    weight: Tensor,
    bits: int,
    granularity: Granularity,
    symmetric: bool = False,
    scale_dtype: torch.dtype = torch.float16,
) -> QuantizedWeight:
    """weight [N, K] floating point -> its packed form. Raises ValueError for a weight, bits or groups that cannot be.

    One scale a tensor is one grid for all rows; one a channel is a group of all K inputs.
    """
    group_size = group_of(weight, granularity)
    whole = weight.float()
    groups = whole.reshape(1, 1, -1) if granularity == PER_TENSOR else whole.unflatten(1, (-1, group_size))
    grid = grid_of(groups, bits, symmetric, scale_dtype)
    codes = grid.codes(whole.unflatten(1, (-1, group_size)))
    return packed(codes.flatten(1), grid, symmetric, group_size, scale_dtype)


def packed(
    codes: Tensor, grid: Grid, symmetric: bool, group_size: int, scale_dtype: torch.dtype = torch.float16
) -> QuantizedWeight:
    """Pack whole-numbered codes [N, K] with their grid, whose scales are [N or 1, K / group_size, 1]."""
    zeros = None if symmetric else grid.zero.squeeze(-1).to(torch.uint8)
    words = pack(codes.to(torch.uint8), grid.bits)
    return QuantizedWeight(words, grid.scale.squeeze(-1).to(scale_dtype), zeros, grid.bits, group_size)


def group_of(weight: Tensor, granularity: Granularity) -> int:
    """The group size that a granularity means for weight [N, K]. Raises ValueError, naming what would fit."""
    if weight.dim() != 2 or not weight.is_floating_point():
        raise ValueError(f"A weight is a floating-point [N, K]; got {weight.dtype} {list(weight.shape)}.")
    inputs = weight.shape[1]
    if granularity in (PER_TENSOR, PER_CHANNEL):
        return inputs
    if not isinstance(granularity, int) or granularity < 1 or inputs % granularity:
        raise ValueError(
            f"{inputs} inputs cannot be cut into groups of {granularity!r}; "
            "give a divisor such as 32, 64 or 128, or 'channel' or 'tensor'."
        )
    return granularity
