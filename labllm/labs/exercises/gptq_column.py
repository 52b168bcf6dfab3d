"""Lab 07: round one column of a weight matrix, and let the columns to its right put the error right.

Teaches the step that all of GPTQ consists of, and where the correlation of the inputs enters it.
"""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from labllm.labs.exercise import Case, Exercise, Mistake
from labllm.quantization.rtn import Grid, grid_of

Answer = tuple[Tensor, Tensor]
BITS = 4


def reference(left: Tensor, factor: Tensor, scale: Tensor, zero: Tensor) -> Answer:
    """left [N, C], factor [C] -> the rounded first column [N] and the others [N, C - 1], moved."""
    rounded = Grid(scale, zero, BITS).nearest(left[:, :1])
    error = (left[:, :1] - rounded) / factor[0]
    return rounded[:, 0], left[:, 1:] - error * factor[1:]


def _rounded(left: Tensor, scale: Tensor, zero: Tensor) -> Tensor:
    return Grid(scale, zero, BITS).nearest(left[:, :1])


def _nothing_moved(left: Tensor, factor: Tensor, scale: Tensor, zero: Tensor) -> Answer:
    return _rounded(left, scale, zero)[:, 0], left[:, 1:]


def _wrong_sign(left: Tensor, factor: Tensor, scale: Tensor, zero: Tensor) -> Answer:
    rounded = _rounded(left, scale, zero)
    return rounded[:, 0], left[:, 1:] + (left[:, :1] - rounded) / factor[0] * factor[1:]


def _not_divided(left: Tensor, factor: Tensor, scale: Tensor, zero: Tensor) -> Answer:
    rounded = _rounded(left, scale, zero)
    return rounded[:, 0], left[:, 1:] - (left[:, :1] - rounded) * factor[1:]


def _divided_twice(left: Tensor, factor: Tensor, scale: Tensor, zero: Tensor) -> Answer:
    rounded = _rounded(left, scale, zero)
    return rounded[:, 0], left[:, 1:] - (left[:, :1] - rounded) / factor[0] ** 2 * factor[1:]


def _error_spread_evenly(left: Tensor, factor: Tensor, scale: Tensor, zero: Tensor) -> Answer:
    rounded = _rounded(left, scale, zero)
    return rounded[:, 0], left[:, 1:] + (left[:, :1] - rounded) / max(1, left.shape[1] - 1)


def _whole_weight_moved(left: Tensor, factor: Tensor, scale: Tensor, zero: Tensor) -> Answer:
    return _rounded(left, scale, zero)[:, 0], left[:, 1:] - left[:, :1] / factor[0] * factor[1:]


def _all_rounded(left: Tensor, factor: Tensor, scale: Tensor, zero: Tensor) -> Answer:
    rounded, rest = reference(left, factor, scale, zero)
    return rounded, Grid(scale, zero, BITS).nearest(rest)


def _codes_kept(left: Tensor, factor: Tensor, scale: Tensor, zero: Tensor) -> Answer:
    _, rest = reference(left, factor, scale, zero)
    return Grid(scale, zero, BITS).codes(left[:, :1])[:, 0], rest


def _not_clamped(left: Tensor, factor: Tensor, scale: Tensor, zero: Tensor) -> Answer:
    rounded = torch.round(left[:, :1] / scale) * scale
    return rounded[:, 0], left[:, 1:] - (left[:, :1] - rounded) / factor[0] * factor[1:]


def _case(name: str, rows: int, columns: int, moved: float = 1.0) -> Case:
    return Case(name, lambda g: _draw(g, rows, columns, moved))


def _draw(generator: Generator, rows: int, columns: int, moved: float) -> tuple[Tensor, ...]:
    x = torch.randn(8 * columns, columns, generator=generator) @ torch.randn(columns, columns, generator=generator)
    hessian = x.T @ x / len(x)
    inverse = torch.linalg.inv(hessian + 0.1 * hessian.diagonal().mean() * torch.eye(columns))
    factor = torch.linalg.cholesky(inverse, upper=True)[0]
    weight = torch.randn(rows, columns, generator=generator)
    grid = grid_of(weight, BITS, symmetric=False)
    return moved * weight, factor, grid.scale, grid.zero


EXERCISE = Exercise(
    name="gptq_column",
    lab=7,
    title="One step of GPTQ: round the first column that is left, and move all others against its error.",
    signature="""gptq_column(
    left: torch.Tensor, factor: torch.Tensor, scale: torch.Tensor, zero: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]""",
    shapes="""
left     [N, C]: the columns not rounded yet, of N rows; column 0 is the next one
factor   [C]: row of U that belongs to column 0, from its diagonal on (U^T U is the inverse of the Hessian)
scale    [N, 1], zero [N, 1]: the 4-bit grid of each row, codes 0 .. 15
returns  the rounded column [N] (values, not codes), and the other columns [N, C - 1] after the move""",
    formula="""
q = (clamp(round(w_0 / scale) + zero, 0, 15) - zero) * scale
w_k <- w_k - (w_0 - q) / factor_0 * factor_k           for k = 1 .. C - 1""",
    reference=reference,
    library="labllm.quantization.gptq",
    parts=("rounded", "left"),
    cases=(
        _case("one row, two columns", 1, 2),
        _case("4 rows, 6 columns", 4, 6),
        _case("the last column: nothing is left to move", 3, 1),
        _case("weights that moved outside their grid: the code is clamped", 5, 4, moved=1.8),
        _case("64 rows, 128 columns", 64, 128),
    ),
    hints=(
        "left[:, :1] keeps the column as [N, 1], which meets scale and zero of the same shape.",
        "The error is w_0 - q, a number a row. Divided by factor[0] it is a column [N, 1].",
        "A column [N, 1] times a row factor[1:] [C - 1] is the matrix [N, C - 1] by which the others move.",
    ),
    mistakes=(
        Mistake("Nothing is moved: this is rounding to nearest, a column at a time.", _nothing_moved),
        Mistake("The other columns move the wrong way: subtract.", _wrong_sign),
        Mistake("The error is not divided by factor[0], the diagonal of U.", _not_divided),
        Mistake("It divides by factor[0] squared; U is a Cholesky factor: once is enough.", _divided_twice),
        Mistake("The error is spread evenly; factor says how much each column can do about it.", _error_spread_evenly),
        Mistake("It moves by the whole weight w_0; only its rounding error w_0 - q has to be put right.",
                _whole_weight_moved),
        Mistake("The other columns are rounded too; they must stay real numbers until their turn.", _all_rounded),
        Mistake("It returns codes; the values (code - zero) * scale are asked for.", _codes_kept),
        Mistake("The code is not clamped: a weight that has moved outside its grid gets the last value.", _not_clamped),
    ),
)  # fmt: skip
