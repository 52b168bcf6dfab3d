"""Lab 07: round groups of weights to a few evenly spaced values.

Teaches what a scale and a zero point are, and that 0 must stay 0: padding and dead channels are exact zeros.
"""

from __future__ import annotations

import copy

import torch
from torch import Generator, Tensor

from labllm.bench import Rung
from labllm.labs.exercise import Case, Exercise, Function, Mistake
from labllm.models.quantization_ladder import GRANULARITIES, Made, Reader, Task, own_reference, read, source, where
from labllm.models.quantize import linears_of
from labllm.quantization.module import QuantizedLinear, kept
from labllm.quantization.packed import QuantizedWeight, pack
from labllm.quantization.rtn import grid_of

Answer = tuple[Tensor, Tensor, Tensor]


def reference(groups: Tensor, bits: int) -> Answer:
    """groups [N, G] -> codes [N, G], scale [N, 1], zero [N, 1]."""
    grid = grid_of(groups, bits, symmetric=False)
    return grid.codes(groups), grid.scale, grid.zero


def _written(
    groups: Tensor,
    bits: int,
    steps: int | None = None,
    low: Tensor | None = None,
    high: Tensor | None = None,
    rounding: Function = torch.round,
    zero_rounding: Function = torch.round,
    clamped: bool = True,
) -> Answer:
    """The formula with one of its parts replaced."""
    steps = 2**bits - 1 if steps is None else steps
    low = groups.amin(-1, keepdim=True).clamp(max=0) if low is None else low
    high = groups.amax(-1, keepdim=True).clamp(min=0) if high is None else high
    scale = (high - low) / steps
    zero = zero_rounding(-low / scale)
    codes = rounding(groups / scale) + zero
    return (codes.clamp(0, 2**bits - 1) if clamped else codes), scale, zero


def _sixteen_steps(groups: Tensor, bits: int) -> Answer:
    return _written(groups, bits, steps=2**bits)


def _range_without_zero(groups: Tensor, bits: int) -> Answer:
    return _written(groups, bits, low=groups.amin(-1, keepdim=True), high=groups.amax(-1, keepdim=True))


def _one_range_for_all(groups: Tensor, bits: int) -> Answer:
    low, high = groups.amin().clamp(max=0).expand(len(groups), 1), groups.amax().clamp(min=0).expand(len(groups), 1)
    return _written(groups, bits, low=low, high=high)


def _symmetric(groups: Tensor, bits: int) -> Answer:
    largest = groups.abs().amax(-1, keepdim=True)
    return _written(groups, bits, low=-largest, high=largest)


def _cut_off(groups: Tensor, bits: int) -> Answer:
    return _written(groups, bits, rounding=torch.floor)


def _zero_not_rounded(groups: Tensor, bits: int) -> Answer:
    return _written(groups, bits, zero_rounding=lambda z: z)


def _zero_inside_the_rounding(groups: Tensor, bits: int) -> Answer:
    _, scale, zero = _written(groups, bits)
    low = groups.amin(-1, keepdim=True).clamp(max=0)
    return torch.round((groups - low) / scale).clamp(0, 2**bits - 1), scale, zero


def _not_clamped(groups: Tensor, bits: int) -> Answer:
    return _written(groups, bits, clamped=False)


def _zero_negative(groups: Tensor, bits: int) -> Answer:
    codes, scale, zero = reference(groups, bits)
    return codes, scale, -zero


def _values_returned(groups: Tensor, bits: int) -> Answer:
    codes, scale, zero = reference(groups, bits)
    return (codes - zero) * scale, scale, zero


def _case(name: str, bits: int, *rows: list[float]) -> Case:
    return Case(name, lambda g: (torch.tensor(rows), bits))


def _drawn(name: str, bits: int, count: int, size: int, shift: float = 0.0) -> Case:
    def draw(generator: Generator) -> tuple[Tensor, int]:
        sizes = torch.rand(count, 1, generator=generator) + 0.1
        return (torch.randn(count, size, generator=generator) + shift) * sizes, bits

    return Case(name, draw)


def as_rung(quantize_group: Function) -> Rung:
    """pico rounded by the learner's function, for `labllm.models.quantization_ladder.QUANTIZATION`."""

    def prepare(task: Task) -> Reader:
        w, model = task.workload, copy.deepcopy(source(task.workload.outliers, *where(task)))
        size = GRANULARITIES[w.granularity]
        if not isinstance(size, int):
            raise ValueError(f"your function takes groups; choose a group size and not one scale a {w.granularity}")
        for name, linear in linears_of(model).items():
            rows, inputs = linear.weight.shape
            codes, scale, zero = quantize_group(linear.weight.float().reshape(-1, size), w.bits)
            words = pack(codes.reshape(rows, inputs).to(torch.uint8), w.bits)
            stored = QuantizedWeight(words, scale.view(rows, -1), zero.view(rows, -1).to(torch.uint8), w.bits, size)
            model.set_submodule(name, QuantizedLinear(stored, linear.bias, kept))
        return Reader(task, Made(model, 0.0))

    return Rung(
        "yours", read, prepare, "your groups, scales in 32 bits", own_reference=own_reference, sources=(quantize_group,)
    )


EXERCISE = Exercise(
    name="quantize_group",
    lab=7,
    title="Round each group of weights to the nearest of 2^bits evenly spaced values.",
    signature="quantize_group(groups: torch.Tensor, bits: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]",
    shapes="""
groups   [N, G] float32: N groups of G weights, each group with a scale and a zero point of its own
returns  codes [N, G], whole numbers in 0 .. 2^bits - 1; scale [N, 1]; zero [N, 1], whole numbers; all float32""",
    formula="""
low = min(0, min w), high = max(0, max w)             of the group
scale = (high - low) / (2^bits - 1)
zero = round(-low / scale)
code = round(w / scale) + zero, clamped to 0 .. 2^bits - 1;     w is then about (code - zero) * scale""",
    reference=reference,
    library="labllm.quantization.rtn",
    as_rung=as_rung,
    parts=("codes", "scale", "zero"),
    cases=(
        _case("one group, 2 bits: -1, 0, 1, 2", 2, [-1.0, 0.0, 1.0, 2.0]),
        _case("one group, 3 bits, nothing falls on the grid", 3, [-0.37, 0.11, 0.52, -0.08, 0.29]),
        _case("both ends half way between two codes: -1.5 to 1.5, 2 bits", 2, [-1.5, 1.5, 0.2, -0.7]),
        _case("all weights positive: 0 must be on the grid all the same", 4, [0.5, 0.75, 1.0, 0.6]),
        _case("all weights negative", 4, [-0.5, -0.75, -1.0, -0.6]),
        _drawn("4 groups of different size", 4, 4, 8),
        _drawn("groups that lean to one side", 4, 6, 16, shift=0.7),
        _drawn("256 groups of 64", 4, 256, 64),
    ),
    hints=(
        "amin(-1, keepdim=True) is the least weight of each group, [N, 1]; clamp(max=0) is min(0, .).",
        "2 bits make 4 values, and between 4 values lie 3 steps: 2**bits - 1.",
        "The zero point is the code that stands for 0. Round it before it is added, or 0 is no longer exact.",
        "Rounding both w / scale and -low / scale can end one step outside: clamp_(0, 2**bits - 1).",
    ),
    mistakes=(
        Mistake("It divides the range by 2^bits; between 2^bits values lie 2^bits - 1 steps.", _sixteen_steps),
        Mistake("The range leaves 0 out where all weights have one sign: low is at most 0, high at least 0.",
                _range_without_zero),
        Mistake("All groups share one range; each has its own (amin and amax over the last dimension).",
                _one_range_for_all),
        Mistake("The range is symmetric, -max|w| to max|w|; here it runs from low to high.", _symmetric),
        Mistake("It cuts off instead of rounding: torch.round takes the nearest.", _cut_off),
        Mistake("The zero point is not rounded: 0 then falls between two codes.", _zero_not_rounded),
        Mistake("It rounds (w - low) / scale in one go; then the code of 0 is not always zero. Round both parts.",
                _zero_inside_the_rounding),
        Mistake("Codes leave 0 .. 2^bits - 1 where both roundings go up: clamp them.", _not_clamped),
        Mistake("The zero point has the wrong sign: it is the code of 0, so it is not negative.", _zero_negative),
        Mistake("It returns the values that codes stand for; the codes themselves are asked for.", _values_returned),
    ),
)  # fmt: skip
