"""The pace of a stream counts the wait for each item and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest

from labllm.bench import pace as module
from labllm.bench.pace import best_pace, pace


class Clock:
    """A clock that moves only when it is told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


def test_the_reader_s_own_time_does_not_count(clock: Clock):
    def items() -> Iterator[str]:
        for word, seconds in (("first", 5.0), ("second", 2.0)):
            clock.now += seconds
            yield word

    found = []
    for item, seconds in pace(items()):
        found.append((item, seconds))
        clock.now += 100
    assert found == [("first", 5.0), ("second", 2.0)]


def test_the_best_pace_leaves_out_the_first_run_and_alternates(clock: Clock):
    waits = {"a": iter([(0.5, 0.5), (1.0, 5.0), (2.0, 4.0)]), "b": iter([(9.0,), (8.0,), (7.0,)])}
    order = []

    def make(name: str) -> Iterator[int]:
        order.append(name)
        for number, seconds in enumerate(next(waits[name])):
            clock.now += seconds
            yield number

    assert best_pace({name: partial(make, name) for name in waits}, runs=2) == {"a": [1.0, 4.0], "b": [7.0]}
    assert order == ["a", "b"] * 3


def test_runs_of_different_lengths_are_refused(clock: Clock):
    lengths = iter([1, 1, 2, 1])
    with pytest.raises(ValueError, match="each run of a must yield as many items"):
        best_pace({"a": lambda: range(next(lengths))})
