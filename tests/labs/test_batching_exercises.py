"""The exercises of lab 10 ask for what the serving room does."""

from __future__ import annotations

import pytest

from labllm.devices import KNOWN
from labllm.labs.registry import exercises, get, solution_function
from labllm.models.pico.shape import PICO
from labllm.serving.config import CONTINUOUS
from labllm.serving.gangs import gang_steps
from labllm.serving.simulation import simulate
from labllm.serving.step_time import StepTime
from labllm.serving.traces import TracedRequest


def arguments(name: str):
    exercise = get(name)
    return [exercise.arguments(case) for case in exercise.cases]


def test_lab_10_has_its_three_exercises():
    assert sorted(e.name for e in exercises(10)) == ["continuous_step", "gang_steps", "latencies"]


def steps_by_hand(lengths: list[int], seats: int) -> int:
    running, waiting, steps = [], list(lengths), 0
    while running or waiting:
        solution_function("continuous_step")(running, waiting, seats)
        steps += 1
    return steps


@pytest.mark.parametrize(("lengths", "seats"), [([3, 9, 2, 2, 7, 1], 2), ([5] * 7, 3), ([1, 1, 1, 20], 4)])
def test_continuous_step_takes_the_steps_of_the_engine(lengths: list[int], seats: int):
    trace = [TracedRequest(prompt=((str(i), 1),), max_tokens=n) for i, n in enumerate(lengths)]
    model = StepTime(PICO, KNOWN[0], "float16")
    run = simulate(trace, CONTINUOUS.but(max_num_seqs=seats, max_model_len=64), model)
    decoded = sum(any(new == 1 and computed for _, computed, new in step.chunks) for step in run.log)
    assert decoded <= steps_by_hand(lengths, seats) <= len(run.log)


def test_gang_steps_is_the_library_s():
    for lengths, seats in arguments("gang_steps"):
        assert solution_function("gang_steps")(lengths, seats) == tuple(gang_steps(lengths, seats))


def test_latencies_add_up_to_the_last_token():
    for arrival, times in arguments("latencies"):
        ttft, tpot, longest = solution_function("latencies")(arrival, times)
        assert arrival + ttft + (len(times) - 1) * tpot == pytest.approx(times[-1]) and longest >= tpot
