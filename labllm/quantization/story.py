"""GPTQ step by step, the plainest way: one column after another, every later column moved at once.

The same algorithm as `gptq` without blocks, scales found once, kept for its course: after each column, what the rounded
columns and the moved ones together do to the layer's output. Cost: N K a column, and N K^2 for each step that is looked
at. For reading; `gptq` is the one to use.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from labllm.quantization.gptq import inverse_factor
from labllm.quantization.inputs import InputStatistics, output_energy
from labllm.quantization.rtn import Granularity, Grid, grid_of, group_of


@dataclass(frozen=True)
class Moment:
    """After `done` columns: the weight [N, K] as it now is, rounded ones first in `order`, and its relative error."""

    done: int
    weight: Tensor
    order: Tensor
    error: float


def course(
    weight: Tensor, inputs: InputStatistics, bits: int, granularity: Granularity, compensate: bool, every: int = 1
) -> Iterator[Moment]:
    """Round weight [N, K] column by column, inputs with the largest Hessian first, and look at every `every`-th state.

    With `compensate` the later columns are moved against the error, as GPTQ does; without, nothing moves.
    Raises ValueError for groups that do not divide K.
    """
    size, current = group_of(weight, granularity), weight.float().clone()
    groups = current.unflatten(1, (-1, size))
    grid = grid_of(groups, bits, symmetric=False)
    order = inputs.hessian.diagonal().argsort(descending=True, stable=True)
    factor, _ = inverse_factor(inputs, order)
    yield Moment(0, current.clone(), order, 0.0)
    for j, at in enumerate(order.tolist()):
        column = Grid(grid.scale[:, at // size], grid.zero[:, at // size], bits)
        value = current[:, at : at + 1].clone()
        current[:, at : at + 1] = column.nearest(value)
        if compensate:
            error = (value - current[:, at : at + 1]) / factor[j, j]
            current[:, order[j + 1 :]] -= error * factor[j, j + 1 :]
        if (j + 1) % every == 0 or j + 1 == len(order):
            gap = output_energy(current - weight.float(), inputs.hessian)
            whole = output_energy(weight.float(), inputs.hessian)
            yield Moment(j + 1, current.clone(), order, torch.sqrt(gap / whole).item())
