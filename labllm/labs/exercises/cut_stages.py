"""Lab 16: cut a model into pipeline stages by what its layers cost.

Teaches that a pipeline runs at the pace of its slowest stage, so that cutting means making the *largest* sum small, and
that the head weighs as much as several layers: as many layers for every stage is not a balance.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import combinations, pairwise

from torch import Generator

from labllm.labs.exercise import Case, Exercise, Mistake

Costs = list[float]
Sizes = list[int]


def reference(costs: Costs, stages: int) -> Sizes:
    """Parts of each stage, so that the most expensive stage costs least."""
    return _best(costs, stages, max)


def _best(costs: Costs, stages: int, worst: Callable[[Costs], float]) -> Sizes:
    inner = range(1, len(costs))
    cuts = min(combinations(inner, stages - 1), key=lambda cut: worst(_sums(costs, _sizes(cut, len(costs)))))
    return _sizes(cuts, len(costs))


def _sizes(cuts: tuple[int, ...], parts: int) -> Sizes:
    return [end - start for start, end in pairwise((0, *cuts, parts))]


def _sums(costs: Costs, sizes: Sizes) -> Costs:
    ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]
    return [sum(costs[end - size : end]) for size, end in zip(sizes, ends, strict=True)]


def _by_count(costs: Costs, stages: int) -> Sizes:
    each, more = divmod(len(costs), stages)
    return [each + (i < more) for i in range(stages)]


def _by_count_rest_last(costs: Costs, stages: int) -> Sizes:
    each = len(costs) // stages
    return [each] * (stages - 1) + [len(costs) - each * (stages - 1)]


def _by_count_rest_rounded(costs: Costs, stages: int) -> Sizes:
    each = math.ceil(len(costs) / stages)
    return [each] * (stages - 1) + [len(costs) - each * (stages - 1)]


def _filled(costs: Costs, stages: int, beyond: bool) -> Sizes:
    """Fill each stage to the mean; `beyond`: the part that crosses it still comes in."""
    mean, sizes, held = sum(costs) / stages, [0], 0.0
    for cost in costs:
        full = held >= mean if beyond else held + cost > mean
        if full and sizes[-1] and len(sizes) < stages:
            sizes, held = [*sizes, 0], 0.0
        sizes[-1], held = sizes[-1] + 1, held + cost
    return sizes + [0] * (stages - len(sizes))


def _filled_below(costs: Costs, stages: int) -> Sizes:
    return _filled(costs, stages, beyond=False)


def _filled_beyond(costs: Costs, stages: int) -> Sizes:
    return _filled(costs, stages, beyond=True)


def _least_squares(costs: Costs, stages: int) -> Sizes:
    return _best(costs, stages, lambda sums: sum(s * s for s in sums))


def _least_spread(costs: Costs, stages: int) -> Sizes:
    return _best(costs, stages, lambda sums: max(sums) - min(sums))


def _largest_least(costs: Costs, stages: int) -> Sizes:
    return _best(costs, stages, lambda sums: -min(sums))


def _head_forgotten(costs: Costs, stages: int) -> Sizes:
    sizes = _best(costs[:-1], stages, max)
    return [*sizes[:-1], sizes[-1] + 1]


def _places(costs: Costs, stages: int) -> Sizes:
    sizes = reference(costs, stages)
    return [sum(sizes[:i]) for i in range(stages)]


def _ends(costs: Costs, stages: int) -> Sizes:
    sizes = reference(costs, stages)
    return [sum(sizes[: i + 1]) for i in range(stages)]


def _totals(costs: Costs, stages: int) -> Costs:
    return _sums(costs, reference(costs, stages))


def _case(name: str, costs: Costs, stages: int) -> Case:
    def make_args(_: Generator) -> tuple[Costs, int]:
        return list(costs), stages

    return Case(name, make_args)


EXERCISE = Exercise(
    name="cut_stages",
    lab=16,
    title="Cut a model into stages so that the slowest stage is as fast as can be.",
    signature="cut_stages(costs: list[float], stages: int) -> list[int]",
    shapes="""
costs   seconds of each part in order: the embedding, the layers, the head; at most 20 parts
stages  how many stages, at most as many as parts and at most 4
returns how many parts each stage has, the first stage first; every part is in one stage, every stage has a part""",
    formula="""
a stage is a run of neighbours and takes the sum of their costs; make the largest of these sums as small as possible
(in every case that is checked there is one best cut)""",
    reference=reference,
    library="labllm.parallel.stages.partition",
    cases=(
        _case("equal layers, a head of three", [1, 1, 1, 1, 1, 1, 1, 3], 2),
        _case("three stages", [3, 9, 2, 4, 3, 4], 3),
        _case("pico: an embedding, 8 layers, a head", [0.1, 2, 2, 2, 2, 2, 2, 2, 2, 4], 2),
        _case("a dear part in the middle", [1, 1, 9, 1, 1, 1, 1], 3),
        _case("the best cut is not a greedy one", [7, 8, 6, 4, 1, 9], 3),
        _case("four stages", [2, 7, 6, 3, 2, 1, 5, 9, 6], 4),
        _case("one stage", [3, 1, 2], 1),
        _case("as many stages as parts", [5, 1, 2], 3),
    ),
    hints=(
        "A cut is stages - 1 places out of 1 ... len(costs) - 1: itertools.combinations(range(1, n), stages - 1).",
        "For each, the stages lie between neighbours of [0, *cuts, n]; their sums are sum(costs[a:b]).",
        "Keep the cut with the smallest *largest* sum. With at most 20 parts trying all of them takes no time; real "
        "planners use dynamic programming.",
    ),
    mistakes=(
        Mistake(
            "It gives each stage as many parts; what counts is what they cost, and the head costs as much as several "
            "layers.",
            _by_count,
            also=(_by_count_rest_last, _by_count_rest_rounded),
        ),
        Mistake(
            "It fills each stage up to the mean and goes on; the last stage gets what is left, which may be most.",
            _filled_below,
            also=(_filled_beyond,),
        ),
        Mistake(
            "It makes the sums alike (squares, spread, the smallest one); the largest one alone sets the pace.",
            _least_squares,
            also=(_least_spread, _largest_least),
        ),
        Mistake(
            "The last part, the head, is left out of the costs; it comes on top of the last stage.", _head_forgotten
        ),
        Mistake("It gives where each stage begins; asked is how many parts it has.", _places),
        Mistake("It gives where each stage ends; asked is how many parts it has.", _ends),
        Mistake("It gives what each stage costs; asked is how many parts it has.", _totals),
    ),
)
