"""Schedules of a pipeline: which stage works on which micro-batch of which step, tick by tick, before anything runs.

Stage s works on micro-batch j of step k at tick  k period + j + s.  A step here is one token of every sequence (step 0
may read the prompts): micro-batch j of step k+1 needs the ids that the last stage wrote for it in step k.

    fill-drain    period = m + p - 1: the last micro-batch of a step leaves the pipeline before the next step enters.
                  Each step fills and drains it, so a share (p - 1) / (m + p - 1) of all ticks is a bubble
                  (Huang et al. 2019, GPipe, arXiv:1811.06965, section 2.3)
    continuous    period = max(m, p): a micro-batch enters again as soon as its ids are back. With m >= p no stage waits
                  for another, but for the first fill and the last drain

Cost: nothing but the order. Invariant: a stage does one thing a tick, always in the order (step, micro-batch), and
whatever a task needs was done at an earlier tick. It loses where m < p: then even the best order leaves (p - m) / p of
the ticks idle, and one token takes as long as on one device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple


class Task(NamedTuple):
    """One stage's work on one micro-batch in one step."""

    stage: int
    micro_batch: int
    step: int


@dataclass(frozen=True)
class Schedule:
    """`micro_batches` through `stages`; `period` ticks lie between the beginnings of two steps.

    Raises ValueError for sizes below one and for a period in which a micro-batch's ids would not be back.
    """

    name: str
    stages: int
    micro_batches: int
    period: int

    def __post_init__(self) -> None:
        if min(self.stages, self.micro_batches) < 1:
            raise ValueError(
                f"A pipeline has at least one stage and one micro-batch; got {self.stages} and {self.micro_batches}."
            )
        if self.period < (least := max(self.stages, self.micro_batches)):
            raise ValueError(f"A step of this pipeline takes at least {least} ticks; got a period of {self.period}.")

    @property
    def drains(self) -> bool:
        """Whether a step has left the pipeline before the next one enters."""
        return self.period >= self.micro_batches + self.stages - 1

    @property
    def bubble(self) -> float:
        """Share of a period in which a stage is idle, 0 to 1: of a long run with stages of equal cost."""
        return 1 - self.micro_batches / self.period

    def tick(self, task: Task) -> int:
        """When the task is done."""
        return task.step * self.period + task.micro_batch + task.stage

    def tasks_of(self, stage: int, steps: int = 1) -> Iterator[Task]:
        """What a stage does in `steps` steps, in its order."""
        return (Task(stage, j, step) for step in range(steps) for j in range(self.micro_batches))

    def table(self, steps: int = 1) -> list[Task]:
        """Every stage's tasks by tick: whatever a task needs stands before it."""
        every = (task for stage in range(self.stages) for task in self.tasks_of(stage, steps))
        return sorted(every, key=lambda task: (self.tick(task), task))

    def needs(self, task: Task) -> list[Task]:
        """Whose answers must have come before the task begins, in the order in which they come.

        On the first stage these are ids: the micro-batch's own or, where steps drain, those of the whole step before.
        """
        if task.stage > 0:
            return [task._replace(stage=task.stage - 1)]
        if task.step == 0:
            return []
        waited = range(self.micro_batches) if self.drains else [task.micro_batch]
        return [Task(self.stages - 1, j, task.step - 1) for j in waited]

    def feeds(self, task: Task) -> Task:
        """Whose input the task's answer is: the next stage's or, of the last stage, that of the next step."""
        if task.stage < self.stages - 1:
            return task._replace(stage=task.stage + 1)
        return Task(0, task.micro_batch, task.step + 1)


def fill_drain(stages: int, micro_batches: int) -> Schedule:
    """Every step fills the pipeline and drains it."""
    return Schedule("fill-drain", stages, micro_batches, micro_batches + stages - 1)


def continuous(stages: int, micro_batches: int) -> Schedule:
    """A micro-batch enters again as soon as its ids are back."""
    return Schedule("continuous", stages, micro_batches, max(micro_batches, stages))


SCHEDULES: dict[str, Callable[[int, int], Schedule]] = {"fill-drain": fill_drain, "continuous": continuous}


def bubble_fraction(stages: int, micro_batches: int) -> float:
    """(p - 1) / (m + p - 1): the idle share of every stage when a step fills and drains the pipeline."""
    return fill_drain(stages, micro_batches).bubble


def speedup(stages: int, micro_batches: int) -> float:
    """p m / (m + p - 1): a filled and drained pipeline of equal stages over one device, micro-batches as large."""
    return stages * (1 - bubble_fraction(stages, micro_batches))
