"""Lab 07: find the scales under which rounding hurts a linear's output least.

Teaches that AWQ is a search over one number, and that the error to look at is the output's.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Generator, Tensor

from labllm.labs.exercise import Case, Exercise, Function, Mistake
from labllm.quantization.awq import nearest

ALPHAS = (0.0, 0.25, 0.5, 0.75, 1.0)
Rounding = Callable[[Tensor], Tensor]
Answer = tuple[float, Tensor]


def reference(weight: Tensor, x: Tensor, rounded: Rounding) -> Answer:
    """weight [N, K], x [T, K] -> the best exponent and its scales [K]."""
    return _search(weight, x, rounded)


def _search(
    weight: Tensor,
    x: Tensor,
    rounded: Rounding,
    salience: Function = lambda w, x: x.abs().mean(0),
    error: Function = lambda w, q, x: ((q - w) @ x.T).square().sum(),
    divided: bool = True,
    best: Function = min,
) -> Answer:
    """The search with one of its parts replaced."""
    found = []
    for alpha in ALPHAS:
        scales = salience(weight, x) ** alpha
        q = rounded(weight * scales)
        q = q / scales if divided else q
        found.append((error(weight, q, x).item(), alpha, scales))
    _, alpha, scales = best(found, key=lambda entry: entry[0])
    return alpha, scales


def _error_of_the_weights(weight: Tensor, x: Tensor, rounded: Rounding) -> Answer:
    return _search(weight, x, rounded, error=lambda w, q, x: (q - w).square().sum())


def _largest(weight: Tensor, x: Tensor, rounded: Rounding) -> Answer:
    return _search(weight, x, rounded, salience=lambda w, x: x.abs().amax(0))


def _signed_mean(weight: Tensor, x: Tensor, rounded: Rounding) -> Answer:
    return _search(weight, x, rounded, salience=lambda w, x: x.mean(0).abs())


def _by_the_weights(weight: Tensor, x: Tensor, rounded: Rounding) -> Answer:
    return _search(weight, x, rounded, salience=lambda w, x: w.abs().mean(0))


def _not_divided(weight: Tensor, x: Tensor, rounded: Rounding) -> Answer:
    return _search(weight, x, rounded, divided=False)


def _the_worst(weight: Tensor, x: Tensor, rounded: Rounding) -> Answer:
    return _search(weight, x, rounded, best=max)


def _the_last(weight: Tensor, x: Tensor, rounded: Rounding) -> Answer:
    return ALPHAS[-1], x.abs().mean(0) ** ALPHAS[-1]


def _a_mean_a_token(weight: Tensor, x: Tensor, rounded: Rounding) -> Answer:
    alpha, _ = _search(weight, x, rounded)
    return alpha, x.abs().mean(1) ** alpha


def round_to_four_bits(weight: Tensor) -> Tensor:
    """weight [N, K] rounded to nearest in 4 bits, one scale a row."""
    return nearest(weight, 4, "channel")


def _case(name: str, rows: int, inputs: int, tokens: int, large: float, spread: float = 0.3) -> Case:
    return Case(name, lambda g: _draw(g, rows, inputs, tokens, large, spread))


def _draw(
    generator: Generator, rows: int, inputs: int, tokens: int, large: float, spread: float
) -> tuple[Tensor, Tensor, Rounding]:
    sizes = torch.exp(spread * torch.randn(inputs, generator=generator))
    sizes[: max(1, inputs // 16)] *= large
    x = torch.randn(tokens, inputs, generator=generator) * sizes[torch.randperm(inputs, generator=generator)]
    return torch.randn(rows, inputs, generator=generator), x, round_to_four_bits


EXERCISE = Exercise(
    name="awq_search",
    lab=7,
    title="AWQ's scale search: which exponent leaves the least error in the output?",
    signature="""awq_search(
    weight: torch.Tensor, x: torch.Tensor, rounded: Callable[[torch.Tensor], torch.Tensor]
) -> tuple[float, torch.Tensor]""",
    shapes="""
weight   [N, K]: the linear's weight; its output is x weight^T
x        [T, K]: inputs of T calibration tokens
rounded  a function: any weight [N, K] -> the same weight rounded to 4 bits, as values
returns  the best alpha of 0, 0.25, 0.5, 0.75, 1, and its scales [K]""",
    formula="""
s_k = (mean over tokens of |x_k|)^alpha
error(alpha) = || x (rounded(weight * s) / s - weight)^T ||^2         the least wins; the first of equals""",
    reference=reference,
    library="labllm.quantization.awq.search_scales",
    parts=("alpha", "scales"),
    cases=(
        _case("8 inputs, one of them 20 times as large", 4, 8, 16, 20.0),
        _case("inputs of equal size", 4, 16, 32, 1.0, spread=0.0),
        _case("32 inputs, two of them 10 times as large", 8, 32, 64, 10.0),
        _case("inputs of all sizes", 16, 64, 128, 1.0, spread=1.2),
        _case("128 inputs, eight of them 30 times as large", 32, 128, 256, 30.0),
    ),
    hints=(
        "Loop over the five values of alpha, keep the error of each with alpha and s, and take the least.",
        "x.abs().mean(0) is a number for each input. To the power 0 it is all ones: plain rounding.",
        "weight * s multiplies the columns: [N, K] times [K]. Divide by s again after rounding.",
    ),
    mistakes=(
        Mistake("It looks at the error of the weights; what matters is the error of the output, x times it.",
                _error_of_the_weights),
        Mistake("It takes the largest |x| of an input; AWQ takes the mean.", _largest),
        Mistake("It takes the mean of x, where plus and minus cancel: the mean of |x|.", _signed_mean),
        Mistake("The scales come from the weights; AWQ's come from the inputs.", _by_the_weights),
        Mistake("The rounded weight is not divided by s, so it is another weight than the one compared with.",
                _not_divided),
        Mistake("It takes the largest error.", _the_worst),
        Mistake("It takes the last alpha whatever the errors are.", _the_last),
        Mistake("It takes a mean for each token; a scale belongs to an input: mean(0).", _a_mean_a_token),
    ),
)  # fmt: skip
