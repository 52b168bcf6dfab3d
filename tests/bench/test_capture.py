"""A capture that fails must leave the process as it was."""

from __future__ import annotations

import pytest
import torch

from labllm.bench.capture import capture
from labllm.bench.clock import KernelClock


@pytest.mark.gpu
def test_random_numbers_come_after_a_failed_capture() -> None:
    x = torch.ones(4, device="cuda")
    with pytest.raises(RuntimeError), capture(torch.cuda.CUDAGraph()):
        x.sum().item()
    assert torch.isfinite(torch.randn(4, device="cuda")).all()


@pytest.mark.gpu
def test_work_that_waits_for_the_device_is_timed_with_its_launch() -> None:
    timing = KernelClock(most=5).time(
        lambda x: float(x.sum()), lambda seed: torch.ones(4, device="cuda"), "cuda", touched=16
    )
    assert timing.method.endswith("with launch")
    assert torch.isfinite(torch.randn(4, device="cuda")).all()


@pytest.mark.gpu
def test_what_was_captured_runs_when_it_is_replayed() -> None:
    x, graph = torch.ones(4, device="cuda"), torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with capture(graph):
        x += 1
    assert x.tolist() == [1.0] * 4
    graph.replay()
    assert x.tolist() == [2.0] * 4
