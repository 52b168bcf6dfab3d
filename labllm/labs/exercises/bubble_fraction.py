"""Lab 16: the bubble of a timeline, as it was measured.

Teaches what a bubble is: time in which a stage could have worked and had nothing to do, before its first micro-batch,
between two and after its last, until the whole pipeline is done.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Generator

from labllm.labs.exercise import Case, Exercise, Mistake

Spans = list[tuple[int, float, float]]


def reference(spans: Spans, stages: int) -> float:
    """The share of stages x time in which no span was running."""
    return 1 - _busy(spans) / (stages * (_last(spans) - _first(spans)))


def _busy(spans: Spans) -> float:
    return sum(end - start for _, start, end in spans)


def _first(spans: Spans) -> float:
    return min(start for _, start, _ in spans)


def _last(spans: Spans) -> float:
    return max(end for _, _, end in spans)


def _from_zero(spans: Spans, stages: int) -> float:
    return 1 - _busy(spans) / (stages * _last(spans))


def _busy_share(spans: Spans, stages: int) -> float:
    return 1 - reference(spans, stages)


def _against_busy(spans: Spans, stages: int) -> float:
    total = stages * (_last(spans) - _first(spans))
    return (total - _busy(spans)) / _busy(spans)


def _one_stage(spans: Spans, stages: int) -> float:
    return 1 - _busy(spans) / (_last(spans) - _first(spans))


def _idle_seconds(spans: Spans, stages: int) -> float:
    return stages * (_last(spans) - _first(spans)) - _busy(spans)


def _gaps_only(spans: Spans, stages: int) -> float:
    length = sum(_last(mine) - _first(mine) for mine in _by_stage(spans))
    return 1 - _busy(spans) / length


def _gaps_of_all(spans: Spans, stages: int) -> float:
    gaps = sum(_last(mine) - _first(mine) - _busy(mine) for mine in _by_stage(spans))
    return gaps / (stages * (_last(spans) - _first(spans)))


def _mean_of_gaps(spans: Spans, stages: int) -> float:
    found = [1 - _busy(mine) / (_last(mine) - _first(mine)) for mine in _by_stage(spans)]
    return sum(found) / len(found)


def _stages_seen(spans: Spans, stages: int) -> float:
    return reference(spans, len(_by_stage(spans)))


def _as_written(spans: Spans, stages: int) -> float:
    total = spans[-1][2] - spans[0][1]
    return 1 - _busy(spans) / (stages * total)


def _formula(spans: Spans, stages: int) -> float:
    return (stages - 1) / (len(spans) / stages + stages - 1)


def _by_stage(spans: Spans) -> list[Spans]:
    return [[span for span in spans if span[0] == stage] for stage in sorted({span[0] for span in spans})]


def _fill_drain(stages: int, micro_batches: int, seconds: float, begin: float = 0.0) -> Spans:
    starts = [(stage, begin + (stage + m) * seconds) for stage in range(stages) for m in range(micro_batches)]
    return [(stage, start, start + seconds) for stage, start in starts]


def _case(name: str, spans: Spans, stages: int) -> Case:
    def make_args(_: Generator) -> tuple[Spans, int]:
        return list(spans), stages

    return Case(name, make_args)


def _drawn(stages: int, micro_batches: int) -> Callable[[Generator], tuple[Spans, int]]:
    """Spans of a pipeline whose stages are not equally fast, in the order in which they ended."""

    def make_args(g: Generator) -> tuple[Spans, int]:
        took = (1 + torch.rand(stages, micro_batches, generator=g)).tolist()
        free, ready, spans = [100.0] * stages, [100.0] * micro_batches, []
        for m in range(micro_batches):
            for stage in range(stages):
                start = max(free[stage], ready[m])
                free[stage] = ready[m] = start + took[stage][m]
                spans.append((stage, start, ready[m]))
        return sorted(spans, key=lambda span: span[2]), stages

    return make_args


EXERCISE = Exercise(
    name="bubble_fraction",
    lab=16,
    title="The bubble of a pipeline, from a measured timeline.",
    signature="bubble_fraction(spans: list[tuple[int, float, float]], stages: int) -> float",
    shapes="""
spans   (stage, start, end) of everything that was computed, in seconds of one clock, in any order; a stage computes
        one thing at a time
stages  how many stages the pipeline has, numbered from 0
returns the share of the stages' time that was idle, 0 to 1""",
    formula="""
the pipeline is at work from the first start of all to the last end of all, and every stage is there all the time
bubble = (stages * that time - what was computed) / (stages * that time)""",
    reference=reference,
    library="labllm.parallel.timeline.bubble",
    cases=(
        _case("two stages, one micro-batch", [(0, 0.0, 1.0), (1, 1.0, 2.0)], 2),
        _case("two stages, four micro-batches", _fill_drain(2, 4, 1.0), 2),
        _case("a clock that did not start at 0", _fill_drain(3, 4, 0.5, 12.0), 3),
        _case("a slow second stage", [(0, 0.0, 1.0), (0, 1.0, 2.0), (1, 1.0, 4.0), (1, 4.0, 7.0)], 2),
        _case("a gap inside", [(0, 2.0, 3.0), (1, 3.0, 4.0), (0, 6.0, 7.0), (1, 7.0, 8.0)], 2),
        _case("a stage that had nothing to do", [(0, 0.0, 2.0), (1, 2.0, 3.0)], 3),
        _case("lines in another order", [(1, 2.0, 3.0), (0, 2.0, 3.0), (1, 3.0, 4.0), (0, 1.0, 2.0)], 2),
        _case("no bubble", [(0, 1.0, 5.0), (1, 1.0, 5.0)], 2),
        Case("four uneven stages, six micro-batches", _drawn(4, 6)),
    ),
    hints=(
        "How long was the pipeline at work? From the smallest start of all to the largest end of all.",
        "All stages could have computed in that time: stages * time. What did they? The sum of end - start.",
        "bubble = 1 - computed / (stages * time).",
    ),
    mistakes=(
        Mistake("It counts from 0; the clock may have any beginning: take the first start off.", _from_zero),
        Mistake("That is the share that was busy; the bubble is the rest.", _busy_share),
        Mistake("Idle time is divided by busy time; the bubble is a share of all time.", _against_busy),
        Mistake("The time is that of one stage; all `stages` stages were there.", _one_stage),
        Mistake("Those are seconds; asked is their share of the stages' time.", _idle_seconds),
        Mistake(
            "Only gaps between a stage's own spans count here; waiting for the first micro-batch and for the end of "
            "the last is most of a bubble.",
            _gaps_only,
            also=(_gaps_of_all, _mean_of_gaps),
        ),
        Mistake("A stage without a span is left out; it was idle all the time.", _stages_seen),
        Mistake("It takes the first and the last line of the list; spans come in any order.", _as_written),
        Mistake(
            "That is the formula (p - 1) / (m + p - 1), for stages that are all as fast; asked is what was measured.",
            _formula,
        ),
    ),
)
