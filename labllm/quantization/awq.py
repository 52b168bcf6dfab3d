"""AWQ: before rounding, enlarge the inputs that matter, so that the same step is finer for them.

    X W^T = (X / s) (W s)^T,   s[k] = mean|x[k]|^alpha   (normalised: max(s) min(s) = 1)

The rounding error of a group does not change when one of its columns is scaled up a little, but that column's part in
it is divided by s again. alpha is found on a grid by the output's error; alpha = 0 is rounding to nearest, so the
search never ends worse on its calibration text. Division by s is folded into whatever precedes the linear, a norm's
weight or the rows of another linear, and costs nothing at inference. Then each group's range is clipped where that
lowers the error of its part of the output. Lin et al. 2023, arXiv:2306.00978.

Cost: 20 roundings of the weight, N K^2 FLOPs each; no gradient, no factor. It loses to GPTQ where inputs are equally
large, and gains most where a few are outliers, as in large models.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from labllm.quantization.inputs import InputStatistics, output_energy
from labllm.quantization.packed import QuantizedWeight
from labllm.quantization.rtn import PER_TENSOR, Granularity, Grid, grid_of, group_of, packed

ALPHAS = tuple(i / 20 for i in range(20))
SHRINKS = tuple(1 - i / 20 for i in range(10))


@dataclass(frozen=True)
class Search:
    """What the grid search found: the scales [K], their exponent, and the output's squared error for every exponent."""

    scales: Tensor
    alpha: float
    errors: tuple[tuple[float, float], ...]


def awq_scales(mean_abs: Tensor, alpha: float) -> Tensor:
    """mean_abs [K] of the inputs -> scales [K]; inputs that were never seen are left as they are."""
    scales = mean_abs.clamp(min=1e-4) ** alpha
    return scales / (scales.max() * scales.min()).sqrt()


def search_scales(
    weights: Sequence[Tensor],
    inputs: InputStatistics,
    bits: int,
    granularity: Granularity,
    symmetric: bool = False,
    mean_abs: Tensor | None = None,
) -> Search:
    """The scales for all linears [N_i, K] that share these inputs: the least squared error of all their outputs.

    mean_abs [K] replaces the measured magnitudes: where only tied scales can be folded, or as a control.
    """
    salience = inputs.mean_abs if mean_abs is None else mean_abs
    whole = torch.cat([weight.float() for weight in weights])
    errors = []
    for alpha in ALPHAS:
        scales = awq_scales(salience, alpha)
        rounded = [nearest(weight.float() * scales, bits, granularity, symmetric) / scales for weight in weights]
        errors.append((alpha, output_energy(torch.cat(rounded) - whole, inputs.hessian).item()))
    best = min(errors, key=lambda pair: pair[1])[0]
    return Search(awq_scales(salience, best), best, tuple(errors))


def nearest(weight: Tensor, bits: int, granularity: Granularity, symmetric: bool = False) -> Tensor:
    """weight [N, K] with every value replaced by the nearest on its grid: rounding without packing."""
    groups = weight.unflatten(1, (-1, group_of(weight, granularity)))
    covered = weight.reshape(1, 1, -1) if granularity == PER_TENSOR else groups
    return grid_of(covered, bits, symmetric).nearest(groups).flatten(1)


def clipped(
    weight: Tensor,
    inputs: InputStatistics,
    bits: int,
    granularity: Granularity,
    symmetric: bool = False,
    scale_dtype: torch.dtype = torch.float16,
) -> QuantizedWeight:
    """Round weight [N, K] to nearest on grids that may leave the largest weights of a group out, where that pays.

    A group's squared error is e H[g, g] e^T with the Hessian's block of its own inputs: no other group is looked at.
    """
    size = group_of(weight, granularity)
    groups = weight.float().unflatten(1, (-1, size))
    covered = groups.reshape(1, 1, -1) if granularity == PER_TENSOR else groups
    count = groups.shape[1]
    blocks = inputs.hessian.view(count, size, count, size).diagonal(dim1=0, dim2=2).permute(2, 0, 1)
    best: Grid | None = None
    least = torch.zeros(())
    for shrink in SHRINKS:
        grid = grid_of(covered * shrink, bits, symmetric, scale_dtype)
        gap = (grid.nearest(groups) - groups).transpose(0, 1)
        error = ((gap @ blocks) * gap).sum(-1).T.unsqueeze(-1)
        if granularity == PER_TENSOR:
            error = error.sum().view(1, 1, 1)
        if best is None:
            best, least = grid, error
            continue
        better = error < least
        least = torch.where(better, error, least)
        best = Grid(torch.where(better, grid.scale, best.scale), torch.where(better, grid.zero, best.zero), bits)
    assert best is not None
    return packed(best.codes(groups).flatten(1), best, symmetric, size, scale_dtype)
