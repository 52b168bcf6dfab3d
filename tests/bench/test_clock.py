"""How many buffers keep a cache cold, and what a clock reports."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labllm.bench import KernelClock, RunClock, clock
from labllm.bench.clock import WALL, rotations


@given(st.floats(0, 1e12), st.integers(0, 10**9))
def test_rotated_buffers_outgrow_the_cache_or_reach_the_most(touched: float, cache: int) -> None:
    count = rotations(touched, cache)
    assert 1 <= count <= 64
    assert count == 64 or count * max(1, int(touched)) >= 3 * cache or count == 1


def test_clocks_time_the_state_they_are_given() -> None:
    calls = []
    for one in (KernelClock(budget=0.001, most=5), RunClock(budget=60.0, most=3)):
        calls.clear()
        timing = one.time(calls.append, lambda seed: f"state {seed}", "cpu", touched=1.0)
        assert timing.method == WALL and set(calls) == {"state 0"}
        assert len(calls) == len(timing.samples) + 1, "one warm-up"
        assert 3 <= len(timing.samples) <= 5


def test_a_run_says_what_the_last_timed_one_said() -> None:
    said = iter("abcdef")
    timing = RunClock(budget=60.0, most=3).time(lambda state: next(said), lambda seed: seed, "cpu", touched=1.0)
    assert (timing.out, len(timing.samples)) == ("d", 3), "the first is the warm-up"


@pytest.mark.parametrize(("seconds", "runs"), [(0.5, 4), (2.0, 2), (5.0, 1)], ids=["short", "over budget", "long"])
def test_long_runs_are_not_repeated(seconds: float, runs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    now, calls = [0.0], []
    monkeypatch.setattr(clock.time, "perf_counter", lambda: now[0])

    def run(state: int) -> int:
        now[0] += seconds
        calls.append(state)
        return len(calls)

    timing = RunClock(budget=1.0, most=3).time(run, lambda seed: seed, "cpu", touched=1.0)
    assert len(calls) == runs == timing.out and set(timing.samples) == {seconds}
