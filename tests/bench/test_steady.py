"""The clock of calls in a row: what it counts as one call, and that it keeps its budget."""

from __future__ import annotations

import pytest
import torch

from labllm.bench.clock import WALL
from labllm.bench.steady import STEADY, SteadyClock


def test_on_a_cpu_single_calls_are_timed() -> None:
    calls: list[int] = []
    clock = SteadyClock(budget=1e-9)
    timing = clock.time(calls.append, lambda seed: seed, "cpu", touched=0)
    assert timing.method == WALL and len(timing.samples) == 3 and all(t > 0 for t in timing.samples)
    assert calls == [0] * 5


@pytest.mark.gpu
def test_on_a_gpu_the_host_counts_where_it_is_slower() -> None:
    x = torch.zeros(1, device="cuda")

    def many(x: torch.Tensor) -> None:
        for _ in range(50):
            x = x + 1

    clock = SteadyClock(budget=0.05)
    one, all_of_them = (clock.time(f, lambda _: x, "cuda", touched=0) for f in (lambda x: x + 1, many))
    assert one.method == STEADY and min(all_of_them.samples) > 5 * min(one.samples) > 0
