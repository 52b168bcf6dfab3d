"""Lab 16, further: what n GPUs give as tp x pp, for one token and for many.

Teaches that the two factors do different things: tp divides the time of a step and pays two all-reduces a layer; pp
divides the work among stages, which shortens nothing for one micro-batch and pays off only with several under way.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Generator

from labllm.labs.exercise import Case, Exercise, Mistake

Answer = tuple[float, float]


def reference(seconds: float, layers: int, all_reduce: float, tp: int, pp: int, micro_batches: int) -> Answer:
    """(speed-up of one micro-batch, efficiency of all of them) on tp * pp GPUs."""
    return _answer(seconds, _stage(seconds, layers, all_reduce, tp, pp), tp, pp, micro_batches)


def _stage(seconds: float, layers: int, all_reduce: float, tp: int, pp: int) -> float:
    return (seconds / tp + (2 * layers * all_reduce if tp > 1 else 0.0)) / pp


def _answer(seconds: float, stage: float, tp: int, pp: int, m: int) -> Answer:
    return seconds / (pp * stage), m * seconds / (tp * pp * (m + pp - 1) * stage)


def _told(stage: Callable[..., float]) -> Callable[..., Answer]:
    def wrong(seconds: float, layers: int, all_reduce: float, tp: int, pp: int, m: int) -> Answer:
        return _answer(seconds, stage(seconds, layers, all_reduce, tp, pp), tp, pp, m)

    return wrong


def _with_efficiency(seconds: float, layers: int, all_reduce: float, tp: int, pp: int, m: int, passes: float) -> Answer:
    stage = _stage(seconds, layers, all_reduce, tp, pp)
    return seconds / (pp * stage), m * seconds / (tp * pp * passes * stage)


def _pipeline_shortens(seconds: float, layers: int, all_reduce: float, tp: int, pp: int, m: int) -> Answer:
    stage = _stage(seconds, layers, all_reduce, tp, pp)
    return seconds / stage, reference(seconds, layers, all_reduce, tp, pp, m)[1]


def _no_bubble(seconds: float, layers: int, all_reduce: float, tp: int, pp: int, m: int) -> Answer:
    return _with_efficiency(seconds, layers, all_reduce, tp, pp, m, m)


def _stage_too_many(seconds: float, layers: int, all_reduce: float, tp: int, pp: int, m: int) -> Answer:
    return _with_efficiency(seconds, layers, all_reduce, tp, pp, m, m + pp)


def _one_by_one(seconds: float, layers: int, all_reduce: float, tp: int, pp: int, m: int) -> Answer:
    return _with_efficiency(seconds, layers, all_reduce, tp, pp, m, m * pp)


def _throughput(seconds: float, layers: int, all_reduce: float, tp: int, pp: int, m: int) -> Answer:
    fast, efficiency = reference(seconds, layers, all_reduce, tp, pp, m)
    return fast, efficiency * tp * pp


def _swapped(seconds: float, layers: int, all_reduce: float, tp: int, pp: int, m: int) -> Answer:
    return reference(seconds, layers, all_reduce, tp, pp, m)[::-1]


def _efficiency_twice(seconds: float, layers: int, all_reduce: float, tp: int, pp: int, m: int) -> Answer:
    fast, efficiency = reference(seconds, layers, all_reduce, tp, pp, m)
    return fast / (tp * pp), efficiency


def _case(name: str, *args: float) -> Case:
    def make_args(_: Generator) -> tuple[float, ...]:
        return args

    return Case(name, make_args)


EXERCISE = Exercise(
    name="grid_efficiency",
    lab=16,
    title="What tp x pp GPUs give: for one micro-batch, and for many under way.",
    signature="""grid_efficiency(
    seconds: float, layers: int, all_reduce: float, tp: int, pp: int, micro_batches: int
) -> tuple[float, float]""",
    shapes="""
seconds        of one micro-batch through the whole model on one GPU
layers         each has two all-reduces when tp > 1, of all_reduce seconds; pp divides the layers; sending is free
micro_batches  m of them go through one after the other
returns (speedup, efficiency)""",
    formula="""
a stage holds layers / pp of them and takes seconds / (tp pp), and its all-reduces on top
speedup    = time of one micro-batch on one GPU / on the grid, where it passes pp stages
efficiency = time of all m on one GPU / (tp pp * their time on the grid, m + pp - 1 stages long)""",
    reference=reference,
    library="labllm.models.pipeline.plan",
    parts=("speedup", "efficiency"),
    cases=(
        _case("two stages, one micro-batch", 8.0, 8, 0.0, 1, 2, 1),
        _case("two stages, seven micro-batches", 8.0, 8, 0.0, 1, 2, 7),
        _case("two ranks, no stages", 8.0, 8, 0.125, 2, 1, 1),
        _case("tp 4 x pp 2, one micro-batch", 16e-3, 80, 16e-6, 4, 2, 1),
        _case("tp 4 x pp 2, eight micro-batches", 16e-3, 80, 16e-6, 4, 2, 8),
        _case("tp 2 x pp 4, eight micro-batches", 16e-3, 80, 12e-6, 2, 4, 8),
        _case("one GPU", 3.0, 4, 1.0, 1, 1, 5),
    ),
    hints=(
        "One stage first: seconds / (tp * pp) plus 2 * layers / pp all-reduces, none when tp is 1.",
        "One micro-batch passes pp stages one after the other, so its time on the grid is pp * stage.",
        "m micro-batches: the last one leaves after m + pp - 1 stage times; one GPU takes m * seconds.",
    ),
    mistakes=(
        Mistake(
            "The speed-up counts one stage; a micro-batch has to pass all pp of them, so pp shortens nothing.",
            _pipeline_shortens,
        ),
        Mistake("The bubble is missing: m micro-batches take m + pp - 1 stage times, not m.", _no_bubble),
        Mistake("One stage time too many: m + pp - 1.", _stage_too_many),
        Mistake("Micro-batches go through one by one here; in a pipeline they follow each other.", _one_by_one),
        Mistake(
            "Every stage has the all-reduces of all layers; it holds layers / pp of them.",
            _told(lambda s, layers, ar, tp, pp: s / (tp * pp) + (2 * layers * ar if tp > 1 else 0.0)),
        ),
        Mistake(
            "One all-reduce a layer is counted; there are two.",
            _told(lambda s, layers, ar, tp, pp: _stage(s, layers, ar / 2, tp, pp)),
        ),
        Mistake("The all-reduces are left out.", _told(lambda s, layers, ar, tp, pp: s / (tp * pp))),
        Mistake(
            "The all-reduces are divided by tp; all ranks wait for them.",
            _told(lambda s, layers, ar, tp, pp: _stage(s, layers, ar / tp, tp, pp)),
        ),
        Mistake(
            "With tp = 1 there is nobody to add up with, so no all-reduce.",
            _told(lambda s, layers, ar, tp, pp: (s / tp + 2 * layers * ar) / pp),
        ),
        Mistake("That is how many times as fast it is; the efficiency is a share of tp * pp.", _throughput),
        Mistake("The two numbers are swapped: speedup comes first.", _swapped),
        Mistake("The speed-up is divided by the number of GPUs; only the efficiency is.", _efficiency_twice),
    ),
)
