"""Lab 04: a masked reduction of a row, in Triton: RMSNorm, each row read once and written once.

Teaches the four things of every row kernel: which row is mine, which elements exist, in which type the sum is taken,
and what is written where.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import torch
from torch import Generator, Tensor

from labllm.bench import Rung
from labllm.fusion.norm_ladders import RmsInputs
from labllm.fusion.vertical import passes_cost, room
from labllm.labs.exercise import Case, Exercise, Function, Mistake
from labllm.labs.language import tl
from labllm.labs.launch import fenced, launch


def reference(x, weight, out, stride, columns, eps, BLOCK: tl.constexpr):
    """The kernel, as the exercise asks for it."""
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    inside = column < columns
    values = tl.load(x + row * stride + column, mask=inside, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(values * values) / columns + eps)
    w = tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + row * columns + column, values * scale * w, mask=inside)


def _unmasked_load(x, weight, out, stride, columns, eps, BLOCK: tl.constexpr):
    column = tl.arange(0, BLOCK)
    values = tl.load(x + tl.program_id(0) * stride + column).to(tl.float32)
    scale = tl.rsqrt(tl.sum(values * values) / columns + eps)
    w = tl.load(weight + column, mask=column < columns, other=0.0).to(tl.float32)
    tl.store(out + tl.program_id(0) * columns + column, values * scale * w, mask=column < columns)


def _unmasked_store(x, weight, out, stride, columns, eps, BLOCK: tl.constexpr):
    column = tl.arange(0, BLOCK)
    values = tl.load(x + tl.program_id(0) * stride + column, mask=column < columns, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(values * values) / columns + eps)
    w = tl.load(weight + column, mask=column < columns, other=0.0).to(tl.float32)
    tl.store(out + tl.program_id(0) * columns + column, values * scale * w)


def _padding_counted(x, weight, out, stride, columns, eps, BLOCK: tl.constexpr):
    column = tl.arange(0, BLOCK)
    values = tl.load(x + tl.program_id(0) * stride + column, mask=column < columns, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(values * values) / BLOCK + eps)
    w = tl.load(weight + column, mask=column < columns, other=0.0).to(tl.float32)
    tl.store(out + tl.program_id(0) * columns + column, values * scale * w, mask=column < columns)


def _stride_ignored(x, weight, out, stride, columns, eps, BLOCK: tl.constexpr):
    column = tl.arange(0, BLOCK)
    values = tl.load(x + tl.program_id(0) * columns + column, mask=column < columns, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(values * values) / columns + eps)
    w = tl.load(weight + column, mask=column < columns, other=0.0).to(tl.float32)
    tl.store(out + tl.program_id(0) * columns + column, values * scale * w, mask=column < columns)


def _first_row_only(x, weight, out, stride, columns, eps, BLOCK: tl.constexpr):
    column = tl.arange(0, BLOCK)
    values = tl.load(x + column, mask=column < columns, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(values * values) / columns + eps)
    w = tl.load(weight + column, mask=column < columns, other=0.0).to(tl.float32)
    tl.store(out + column, values * scale * w, mask=column < columns)


def _sixteen_bits(x, weight, out, stride, columns, eps, BLOCK: tl.constexpr):
    column = tl.arange(0, BLOCK)
    values = tl.load(x + tl.program_id(0) * stride + column, mask=column < columns, other=0.0)
    scale = tl.rsqrt(tl.sum(values * values).to(tl.float32) / columns + eps)
    w = tl.load(weight + column, mask=column < columns, other=0.0)
    tl.store(out + tl.program_id(0) * columns + column, values * scale * w, mask=column < columns)


def _sum_not_mean(x, weight, out, stride, columns, eps, BLOCK: tl.constexpr):
    column = tl.arange(0, BLOCK)
    values = tl.load(x + tl.program_id(0) * stride + column, mask=column < columns, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(values * values) + eps)
    w = tl.load(weight + column, mask=column < columns, other=0.0).to(tl.float32)
    tl.store(out + tl.program_id(0) * columns + column, values * scale * w, mask=column < columns)


def _no_root(x, weight, out, stride, columns, eps, BLOCK: tl.constexpr):
    column = tl.arange(0, BLOCK)
    values = tl.load(x + tl.program_id(0) * stride + column, mask=column < columns, other=0.0).to(tl.float32)
    scale = 1 / (tl.sum(values * values) / columns + eps)
    w = tl.load(weight + column, mask=column < columns, other=0.0).to(tl.float32)
    tl.store(out + tl.program_id(0) * columns + column, values * scale * w, mask=column < columns)


def _no_eps(x, weight, out, stride, columns, eps, BLOCK: tl.constexpr):
    column = tl.arange(0, BLOCK)
    values = tl.load(x + tl.program_id(0) * stride + column, mask=column < columns, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(values * values) / columns)
    w = tl.load(weight + column, mask=column < columns, other=0.0).to(tl.float32)
    tl.store(out + tl.program_id(0) * columns + column, values * scale * w, mask=column < columns)


def _no_weight(x, weight, out, stride, columns, eps, BLOCK: tl.constexpr):
    column = tl.arange(0, BLOCK)
    values = tl.load(x + tl.program_id(0) * stride + column, mask=column < columns, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(values * values) / columns + eps)
    tl.store(out + tl.program_id(0) * columns + column, values * scale, mask=column < columns)


def _stride_of_x(x, weight, out, stride, columns, eps, BLOCK: tl.constexpr):
    column = tl.arange(0, BLOCK)
    values = tl.load(x + tl.program_id(0) * stride + column, mask=column < columns, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(values * values) / columns + eps)
    w = tl.load(weight + column, mask=column < columns, other=0.0).to(tl.float32)
    tl.store(out + tl.program_id(0) * stride + column, values * scale * w, mask=column < columns)


def _nothing_stored(x, weight, out, stride, columns, eps, BLOCK: tl.constexpr):
    tl.arange(0, BLOCK)


def run(kernel: Function, x: Tensor, weight: Tensor, eps: float, stride: int) -> Tensor:
    """out [T, H] of one program a row; between and around the rows of x [T, H], `stride` elements apart, lies NaN.

    Raises IndexError where the kernel wrote outside out, and whatever it raises itself.
    """
    columns, out = x.shape[1], fenced(torch.full_like(x, float("nan")))
    given = fenced(x, stride).inside, fenced(weight).inside, out.inside
    launch(kernel, (len(x),), *given, stride, columns, eps, BLOCK=_power_of_two(columns))
    out.check("out")
    return out.inside.clone()


def as_rung(kernel: Function) -> Rung:
    """The residual add in torch, then the learner's norm: a rung between unfused and fused."""

    def two_launches(inputs: RmsInputs) -> tuple[Tensor, Tensor]:
        total = inputs.x + inputs.residual
        (rows, columns), out = total.shape, torch.empty_like(total)
        block = _power_of_two(columns)
        launch(kernel, (rows,), total, inputs.weight, out, columns, columns, inputs.eps, BLOCK=block)
        return out, total

    return Rung(
        "yours",
        two_launches,
        about="an add, then your norm: the sum is written and read again",
        needs=("triton",),
        moved=passes_cost(6, 5, 1),
        memory=room(2),
        sources=(getattr(kernel, "fn", kernel),),
    )


def _power_of_two(size: int) -> int:
    return 1 << (size - 1).bit_length()


def _case(
    name: str, rows: int, columns: int, stride: int = 0, dtype: torch.dtype = torch.float32, last: float = 1.0
) -> Case:
    return Case(name, lambda g: _draw(g, rows, columns, stride or columns, dtype, last))


def _draw(
    generator: Generator, rows: int, columns: int, stride: int, dtype: torch.dtype, last: float
) -> tuple[Tensor, Tensor, float, int]:
    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, device=generator.device)

    x, weight = draw(rows, columns), 1 + draw(columns) / 4
    x[-1] *= last
    return x.to(dtype), weight.to(dtype), 1e-3, stride


EXERCISE = Exercise(
    name="rms_norm_row",
    lab=4,
    title="RMSNorm of one row, in Triton: one load, one reduction, one store.",
    signature="rms_norm_row(x, weight, out, stride, columns, eps, BLOCK: tl.constexpr)",
    shapes="""
x        address of a matrix of `columns` numbers a row: row r begins at x + r * stride, in float32 or float16
weight   address of `columns` numbers
out      address of the result, rows side by side: row r begins at out + r * columns
BLOCK    a power of two, at least `columns`: what tl.arange can span
returns nothing; program tl.program_id(0) writes the row of that number""",
    formula="""
out_j = x_j / sqrt(mean(x^2) + eps) * weight_j, the mean over the row's `columns` numbers, taken in float32""",
    reference=reference,
    library="labllm.kernels.add_norm",
    needs="triton",
    launch=run,
    as_rung=as_rung,
    cases=(
        _case("1 row of 16 in a block of 16", 1, 16),
        _case("4 rows of 16 in a block of 16; the last row is all zeros", 4, 16, last=0.0),
        _case("3 rows of 20 in a block of 32", 3, 20),
        _case("3 rows of 20 that lie 48 apart", 3, 20, stride=48),
        _case("2 rows of 24 in float16, the last with numbers around 300", 2, 24, dtype=torch.float16, last=300.0),
    ),
    hints=(
        "As in the copy kernel: row = tl.program_id(0), column = tl.arange(0, BLOCK), inside = column < columns.",
        "tl.load(x + row * stride + column, mask=inside, other=0.0): what does not exist adds 0 to a sum of squares.",
        "Divide by what exists, columns, and not by BLOCK. tl.rsqrt(y) is 1 / sqrt(y).",
        "300 squared does not fit into float16 (its largest number is 65504): append .to(tl.float32) to the load.",
    ),
    mistakes=(
        Mistake("The load of x has no mask: what lies behind the row joins the sum.", _unmasked_load),
        Mistake("The store has no mask: what lies behind the row is overwritten.", _unmasked_store),
        Mistake("The mean divides by BLOCK; the row has `columns` numbers, the rest is padding.", _padding_counted),
        Mistake("Rows of x are looked for `columns` apart; they lie `stride` apart.", _stride_ignored),
        Mistake("Rows of out are written `stride` apart; they lie side by side, `columns` apart.", _stride_of_x),
        Mistake("Every program takes the first row: add tl.program_id(0) times the distance of rows.", _first_row_only),
        Mistake("Squares are taken in float16, where 300 * 300 is infinite: .to(tl.float32) first.", _sixteen_bits),
        Mistake("It divides by the root of the sum of squares; RMS is the root of their mean.", _sum_not_mean),
        Mistake("The root is missing: multiply by tl.rsqrt of the mean, not by its inverse.", _no_root),
        Mistake("eps is missing: a row of zeros becomes 0 times infinity.", _no_eps),
        Mistake("The weight is missing.", _no_weight),
        Mistake("Nothing reaches out: a kernel returns nothing, tl.store writes what it found.", _nothing_stored),
    ),
)
