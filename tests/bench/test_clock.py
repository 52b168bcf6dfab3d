"""How many buffers keep a cache cold, and what a clock reports."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from labllm.bench import KernelClock, RunClock
from labllm.bench.clock import WALL, rotations


@given(st.floats(0, 1e12), st.integers(0, 10**9))
def test_rotated_buffers_outgrow_the_cache_or_reach_the_most(touched: float, cache: int) -> None:
    count = rotations(touched, cache)
    assert 1 <= count <= 64
    assert count == 64 or count * max(1, int(touched)) >= 3 * cache or count == 1


def test_clocks_time_the_state_they_are_given() -> None:
    calls = []
    for clock in (KernelClock(budget=0.001, most=5), RunClock(budget=0.001, most=3)):
        calls.clear()
        timing = clock.time(calls.append, lambda seed: f"state {seed}", "cpu", touched=1.0)
        assert timing.method == WALL and set(calls) == {"state 0"}
        assert len(calls) == len(timing.samples) + 1, "one warm-up"
        assert 3 <= len(timing.samples) <= 5
