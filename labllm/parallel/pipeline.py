"""The loop of one pipeline stage: receive a micro-batch, compute, send it on, in the order that a schedule says.

Every rank runs this loop with its own stage's tasks, and the pipeline follows: nobody directs it. A sent answer is not
waited for, so it travels while the next micro-batch is computed; it must only be gone before the same micro-batch's
next answer takes its place. On GPUs nothing here waits for the device: sends, receives and computing are queued.

Invariant: the tensors that a stage computes are those of one device that holds all layers. It loses where a message
takes longer than a micro-batch: then the links are the pipeline's slowest stage.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

from torch import Tensor

from labllm.parallel.ring import Ring, Waits
from labllm.parallel.schedules import Schedule, Task

Watch = Callable[[Task], AbstractContextManager[object]]


class Stage(Protocol):
    """What a stage computes; `landing` is where the input of a task that comes from another stage arrives."""

    def landing(self, task: Task) -> Tensor:
        """A contiguous tensor of the shape and dtype that the task's input will have; its content is overwritten."""
        ...

    def compute(self, task: Task, x: Tensor) -> Tensor:
        """x: the task's input -> its answer, contiguous: what the next stage takes, or ids on the last one.

        The answer may lie where this micro-batch's answer of the step before lay, and nowhere else in use.
        """
        ...


def run_stage(
    ring: Ring,
    schedule: Schedule,
    stage: Stage,
    inputs: Sequence[Tensor],
    steps: int = 1,
    watch: Watch = lambda task: nullcontext(),
) -> list[list[Tensor]]:
    """This rank's part of `steps` steps -> its answers [step][micro_batch], as `compute` gave them.

    inputs   of the first stage: what each micro-batch brings to step 0; other stages look at none
    watch    a context for each call of `compute`: `Stopwatch` measures there

    Raises ValueError for a schedule of other stages, and for a first stage whose inputs are not one a micro-batch.
    """
    if schedule.stages != ring.stages:
        raise ValueError(f"The schedule has {schedule.stages} stages and the ring {ring.stages}.")
    if ring.stage == 0 and len(inputs) != schedule.micro_batches:
        raise ValueError(f"{schedule.micro_batches} micro-batches need as many inputs; got {len(inputs)}.")
    arrived: set[Task] = set()
    waiting: dict[Task, Tensor] = {}
    leaving: dict[int, Waits] = {}
    answers: list[list[Tensor]] = [[] for _ in range(steps)]
    for task in schedule.tasks_of(ring.stage, steps):
        for fed in map(schedule.feeds, schedule.needs(task)):
            if fed not in arrived:
                arrived.add(fed)
                waiting[fed] = ring.before.receive(stage.landing(fed))
        if gone := leaving.pop(task.micro_batch, None):
            gone.wait()
        x = waiting.pop(task) if task in waiting else inputs[task.micro_batch]
        with watch(task):
            answer = stage.compute(task, x)
        answers[task.step].append(answer)
        if schedule.feeds(task).step < steps:
            leaving[task.micro_batch] = ring.after.send(answer)
    for gone in leaving.values():
        gone.wait()
    return answers
