"""The stage loop on real ranks: what the pipeline computes is what one process computes, in either order."""

from __future__ import annotations

import queue
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import cloudpickle
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from labllm.parallel import Workers, device, rank, world
from labllm.parallel.mesh import mesh
from labllm.parallel.pipeline import run_stage
from labllm.parallel.ring import Ring, Waits
from labllm.parallel.schedules import SCHEDULES, Task, fill_drain
from labllm.parallel.stopwatch import Stopwatch, gathered
from labllm.parallel.timeline import Span

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # the ranks cannot import this file
WIDTHS = (3, 5, 4)  # rows of each micro-batch


class Toy:
    """Stage s multiplies by s + 2 and adds the step; the last one answers with integers, as ids are."""

    def __init__(self, stages: int) -> None:
        self.stages = stages

    def landing(self, task: Task) -> Tensor:
        dtype = torch.int64 if task.stage == 0 else torch.float64
        return torch.full((WIDTHS[task.micro_batch],), -1, dtype=dtype)

    def compute(self, task: Task, x: Tensor) -> Tensor:
        y = x.double() * (task.stage + 2) + task.step + task.micro_batch
        return (y % 97).long() if task.stage == self.stages - 1 else y


INPUTS = [torch.arange(n) + 10 * n for n in WIDTHS]


def one_by_one(stages: int, steps: int) -> list[list[Tensor]]:
    """What the last stage answers, [step][micro_batch], without a pipeline."""
    toy, answers = Toy(stages), []
    for j, x in enumerate(INPUTS):
        answers.append([])
        for step in range(steps):
            for stage in range(stages):
                x = toy.compute(Task(stage, j, step), x)
            answers[-1].append(x)
    return [list(step) for step in zip(*answers, strict=True)]


def on_ranks(schedule: str, steps: int) -> tuple[list[list[Tensor]], list[Span]]:
    ring, watch = Ring.of(mesh(world(), 1)), Stopwatch(device())
    made = SCHEDULES[schedule](world(), len(WIDTHS))
    answers = run_stage(ring, made, Toy(world()), INPUTS if rank() == 0 else [], steps, watch)
    return answers, gathered(watch.spans())


def same(mine: list[list[Tensor]], theirs: list[list[Tensor]]) -> bool:
    return all(torch.equal(a, b) for one, two in zip(mine, theirs, strict=True) for a, b in zip(one, two, strict=True))


@pytest.mark.parametrize("schedule", sorted(SCHEDULES))
def test_two_ranks_compute_what_one_does_and_are_seen_on_one_clock(workers: Workers, schedule: str) -> None:
    steps = 4
    values = workers.call(on_ranks, schedule, steps)
    assert same(values[1][0], one_by_one(2, steps))
    spans = values[0][1]
    assert spans == values[1][1] and spans[0].start == 0
    ends = {span.task: span.end for span in spans}
    made = SCHEDULES[schedule](2, len(WIDTHS))
    assert set(ends) == set(made.table(steps))
    for span in spans:
        assert span.start <= span.end and all(ends[needed] <= span.start for needed in made.needs(span.task))


class Rendezvous:
    """An edge between threads on which a message leaves only when it is received: what a link may do at worst."""

    def __init__(self) -> None:
        self._sent: queue.Queue[tuple[Tensor, threading.Event]] = queue.Queue()

    def send(self, x: Tensor) -> Waits:
        gone = threading.Event()
        self._sent.put((x, gone))
        return Gone(gone)

    def receive(self, into: Tensor) -> Tensor:
        x, gone = self._sent.get(timeout=20)
        into.copy_(x)
        gone.set()
        return into


class Gone:
    def __init__(self, gone: threading.Event) -> None:
        self._gone = gone

    def wait(self) -> None:
        assert self._gone.wait(20), "nobody received"


class Thrifty(Toy):
    """Writes a micro-batch's answer where its last one was, as a graph does."""

    def __init__(self, stages: int) -> None:
        super().__init__(stages)
        self._kept: dict[Task, Tensor] = {}

    def compute(self, task: Task, x: Tensor) -> Tensor:
        answer = super().compute(task, x)
        return self._kept.setdefault(task._replace(step=0), torch.empty_like(answer)).copy_(answer)


@given(st.sampled_from(sorted(SCHEDULES)), st.integers(2, 4), st.integers(1, 3), st.integers(1, 3))
@settings(max_examples=30, deadline=None)
def test_any_pipeline_over_slow_links_comes_to_its_end_with_the_same_answers(
    schedule: str, stages: int, micro_batches: int, steps: int
) -> None:
    edges = [Rendezvous() for _ in range(stages)]
    made, inputs = SCHEDULES[schedule](stages, micro_batches), INPUTS[:micro_batches]

    def one(stage: int) -> list[Tensor]:
        ring = Ring(stage, stages, edges[stage - 1], edges[stage])
        return run_stage(ring, made, Thrifty(stages), inputs if stage == 0 else [], steps)[-1]

    with ThreadPoolExecutor(stages) as pool:
        answers = list(pool.map(one, range(stages)))[-1]
    expected = one_by_one(stages, steps)[-1][:micro_batches]
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(answers, expected, strict=True))


@pytest.mark.parametrize("schedule", sorted(SCHEDULES))
def test_a_pipeline_of_one_stage_needs_no_other_rank(schedule: str) -> None:
    made = SCHEDULES[schedule](1, len(WIDTHS))
    assert same(run_stage(Ring.alone(), made, Toy(1), INPUTS, 5), one_by_one(1, 5))


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="2 stages and the ring 1"):
        run_stage(Ring.alone(), fill_drain(2, 3), Toy(1), INPUTS)
    with pytest.raises(ValueError, match="3 micro-batches need as many inputs; got 2"):
        run_stage(Ring.alone(), fill_drain(1, 3), Toy(1), INPUTS[:2])
