"""GPTQ: round one input column after another, and let the columns not yet rounded put its error right.

Rounding column j by the error e_j changes the layer's output, and the least change is left when every later column k
moves by -e_j U[j, k] / U[j, j], where U is the upper Cholesky factor of (H + damping)^-1 and H = X^T X. Frantar et
al. 2022, arXiv:2210.17323. U holds all inverses that the algorithm needs, so nothing is inverted inside the loop;
columns are updated inside a block of 128, and the rest of the matrix once a block.

Cost: K^3 for the factor and N K^2 for the updates, one layer in memory. Invariant: with a diagonal H it is rounding
to nearest. It loses where calibration text is unlike the text in use, and gains nothing where inputs are
uncorrelated.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from labllm.quantization.inputs import InputStatistics
from labllm.quantization.packed import QuantizedWeight
from labllm.quantization.rtn import PER_TENSOR, Granularity, Grid, grid_of, group_of, packed

BLOCK = 128
DAMPING = 0.01
MOST_DAMPING = 10.0


@dataclass(frozen=True)
class Report:
    """What the calibration was like: what one should know before trusting the result.

    dead_inputs   inputs that were zero in every token; their weights are rounded to nearest
    damping       share of the mean of H's diagonal that was added to it
    num_tokens    tokens of calibration; fewer than inputs leave H singular, and damping alone decides there
    """

    num_inputs: int
    num_tokens: int
    dead_inputs: int
    damping: float

    @property
    def warnings(self) -> tuple[str, ...]:
        """Sentences about what was unusual; empty when all was well."""
        found = []
        if self.dead_inputs:
            found.append(f"{self.dead_inputs} of {self.num_inputs} inputs were zero in every calibration token.")
        if self.num_tokens < self.num_inputs:
            found.append(f"{self.num_tokens} calibration tokens cannot determine {self.num_inputs} inputs.")
        if self.damping > DAMPING:
            found.append(f"The Hessian was singular: damping was raised to {self.damping:g} of its mean diagonal.")
        return tuple(found)


def gptq(
    weight: Tensor,
    inputs: InputStatistics,
    bits: int,
    granularity: Granularity,
    symmetric: bool = False,
    act_order: bool = True,
    scale_dtype: torch.dtype = torch.float16,
) -> tuple[QuantizedWeight, Report]:
    """weight [N, K] and the statistics of its inputs -> its packed form and a report.

    act_order rounds the inputs with the largest H[k, k] first, while most columns are left to put errors right.
    Scales come from the weight as it was, so groups stay neighbours in memory whatever the order; without act_order a
    group's scale is found when its first column is reached. Raises ValueError for shapes that do not fit or no
    calibration.
    """
    group_size, whole = group_of(weight, granularity), weight.float()
    if whole.shape[1] != len(inputs.hessian):
        raise ValueError(f"The weight has {whole.shape[1]} inputs, the statistics are of {len(inputs.hessian)}.")
    diagonal = inputs.hessian.diagonal()
    order = (
        diagonal.argsort(descending=True, stable=True) if act_order else torch.arange(len(diagonal)).to(diagonal.device)
    )
    factor, report = inverse_factor(inputs, order)
    covered = whole.reshape(1, 1, -1) if granularity == PER_TENSOR else whole.unflatten(1, (-1, group_size))
    grid = grid_of(covered, bits, symmetric, scale_dtype)
    regrid = group_size if not act_order and granularity != PER_TENSOR else len(order)
    codes, left = torch.empty_like(whole), whole[:, order]
    for start in range(0, len(order), BLOCK):
        stop = min(start + BLOCK, len(order))
        errors = torch.empty_like(left[:, start:stop])
        for j in range(start, stop):
            if j % regrid == 0 and regrid < len(order):
                _renew(grid, j // group_size, left[:, j : j + group_size], symmetric, scale_dtype)
            at = int(order[j])
            column = Grid(grid.scale[:, at // group_size], grid.zero[:, at // group_size], bits)
            code = column.codes(left[:, j : j + 1])
            error = (left[:, j : j + 1] - column.values(code)) / factor[j, j]
            left[:, j:stop] -= error * factor[j, j:stop]
            codes[:, at : at + 1], errors[:, j - start : j - start + 1] = code, error
        left[:, stop:] -= errors @ factor[start:stop, stop:]
    return packed(codes, grid, symmetric, group_size, scale_dtype), report


def _renew(grid: Grid, group: int, weights: Tensor, symmetric: bool, scale_dtype: torch.dtype) -> None:
    """Let a group's grid cover its weights [N, G] as they are now, errors of earlier columns included."""
    fresh = grid_of(weights, grid.bits, symmetric, scale_dtype)
    grid.scale[:, group], grid.zero[:, group] = fresh.scale, fresh.zero


def inverse_factor(inputs: InputStatistics, order: Tensor | None = None) -> tuple[Tensor, Report]:
    """Upper U [K, K] with U^T U = (H + damping)^-1, H's inputs taken in `order`; and what was unusual about H."""
    hessian = inputs.hessian.double()
    if order is not None:
        hessian = hessian[order][:, order]
    diagonal = hessian.diagonal()
    dead = diagonal == 0
    if not inputs.num_tokens or bool(dead.all()):
        raise ValueError("GPTQ needs calibration inputs that are not all zero; run the model over some text first.")
    hessian = hessian + torch.diag(dead.double() * diagonal[~dead].mean())
    damping = DAMPING
    while True:
        damped = hessian + torch.eye(len(hessian), device=hessian.device) * damping * diagonal[~dead].mean()
        lower, failed = torch.linalg.cholesky_ex(damped)
        if not failed:
            factor, failed = torch.linalg.cholesky_ex(torch.cholesky_inverse(lower), upper=True)
        if not failed and bool(torch.isfinite(factor).all()):
            return factor.float(), Report(len(hessian), inputs.num_tokens, int(dead.sum()), damping)
        damping *= 10
        if damping > MOST_DAMPING:
            raise ValueError("The Hessian is not positive whatever the damping; check the calibration inputs.")
