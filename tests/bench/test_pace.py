"""The pace of a stream counts the wait for each item and nothing else."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from labllm.bench import pace as module
from labllm.bench.pace import pace, typical_pace


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


def test_a_typical_pace_leaves_out_the_first_run_and_takes_medians(clock: Clock):
    runs = iter([(90.0, 90.0), (1.0, 5.0), (2.0, 4.0), (80.0, 3.0)])

    def make() -> Iterator[int]:
        for number, seconds in enumerate(next(runs)):
            clock.now += seconds
            yield number

    assert typical_pace(make) == [2.0, 4.0]


def test_runs_of_different_lengths_are_refused(clock: Clock):
    lengths = iter([1, 1, 2, 1])
    with pytest.raises(ValueError, match="as many items"):
        typical_pace(lambda: range(next(lengths)))
