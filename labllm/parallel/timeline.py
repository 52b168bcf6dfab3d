"""The timeline of a pipeline: when each stage worked on each micro-batch, computed beforehand or measured.

`simulate` plays a schedule with the seconds that each stage takes, so that unequal stages and slow links can be seen
before they are built; `Stopwatch` (stopwatch.py) measures the same spans. What both give is judged by the same figures:

    bubble = 1 - (sum of all spans) / (stages x time from the first start to the last end)

Invariant: a simulated timeline of equal stages and no hop is the schedule's table, a tick as long as a stage's work.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from labllm.parallel.schedules import Schedule, Task


class Span(NamedTuple):
    """A task and the seconds at which it began and ended, all stages on one clock."""

    task: Task
    start: float
    end: float

    @property
    def seconds(self) -> float:
        """How long it took."""
        return self.end - self.start


def simulate(schedule: Schedule, seconds: Sequence[float], steps: int = 1, hop: float = 0.0) -> list[Span]:
    """The spans of `steps` steps when stage s takes seconds[s] a micro-batch and an answer `hop` to the next stage.

    Raises ValueError unless every stage has its seconds, none negative.
    """
    if len(seconds) != schedule.stages or min(*seconds, hop) < 0:
        raise ValueError(f"{schedule.stages} stages need as many times, none negative; got {list(seconds)} and {hop}.")
    ends: dict[Task, float] = {}
    free = [0.0] * schedule.stages
    spans = []
    for task in schedule.table(steps):
        come = [ends[needed] + hop * (needed.stage != task.stage) for needed in schedule.needs(task)]
        start = max(free[task.stage], *come) if come else free[task.stage]
        ends[task] = free[task.stage] = start + seconds[task.stage]
        spans.append(Span(task, start, ends[task]))
    return spans


def length(spans: Iterable[Span]) -> float:
    """Seconds from the first start to the last end."""
    spans = list(spans)
    return max(span.end for span in spans) - min(span.start for span in spans)


def bubble(spans: Iterable[Span]) -> float:
    """Share of all stages' time in which they were idle, 0 to 1."""
    spans = list(spans)
    stages = len({span.task.stage for span in spans})
    return 1 - sum(span.seconds for span in spans) / (stages * length(spans))


def stage_seconds(spans: Iterable[Span]) -> list[float]:
    """Of each stage the mean seconds of a task."""
    by_stage: dict[int, list[float]] = {}
    for span in spans:
        by_stage.setdefault(span.task.stage, []).append(span.seconds)
    return [sum(every) / len(every) for _, every in sorted(by_stage.items())]
