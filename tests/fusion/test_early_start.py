"""Launches that start early: right among any neighbours, in a graph and one by one, and plain where a GPU has none."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from labllm import fusion, hardware
from labllm.hardware import can_start_early, default_device, triton_mode
from labllm.models.replay import captured

DEVICE = default_device()
needs_triton = pytest.mark.skipif(
    triton_mode() in ("absent", "refused"), reason="Triton is not to be had on this platform"
)


def chain(tokens: int, hidden: int, device: str) -> Callable[[bool], Tensor]:
    """Norm, product, gate, product and norm again, in which every launch reads what the one before it wrote."""
    generator = torch.Generator(device).manual_seed(0)
    x, residual, up, down, weight = (
        torch.randn(shape, generator=generator, device=device, dtype=torch.float16) * scale
        for shape, scale in (
            ((tokens, hidden), 1),
            ((tokens, hidden), 1),
            ((4 * hidden, hidden), hidden**-0.5),
            ((hidden, 2 * hidden), hidden**-0.5),
            ((hidden,), 1),
        )
    )

    def run(overlap: bool) -> Tensor:
        h, total = x, residual
        for _ in range(4):
            normed, total = fusion.add_rms_norm(h, total, weight, overlap=overlap)
            h = fusion.swiglu(normed @ up.T) @ down.T
            h, total = fusion.add_rms_norm(h, total, weight, overlap=overlap)
        return torch.cat((h, total))

    return run


@needs_triton
def test_overlap_changes_no_result() -> None:
    run = chain(3, 64, DEVICE)
    assert torch.equal(run(True), run(False))


@pytest.mark.gpu
@pytest.mark.parametrize("tokens", [1, 33, 2048])
def test_launches_in_a_graph_wait_for_each_other(tokens: int) -> None:
    run = chain(tokens, 1024, "cuda")
    want = captured(lambda: run(False))().clone()
    replay = captured(lambda: run(True))
    for _ in range(20):
        replay.result.fill_(float("nan"))
        assert torch.equal(replay(), want)


def test_only_a_gpu_of_capability_9_starts_early(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not can_start_early("cpu")
    for capability, compiles, early in (((9, 0), True, True), ((8, 9), True, False), ((9, 0), False, False)):
        machine = hardware.Machine("", "cuda", 0, 132, 0, 0, capability, None)
        monkeypatch.setattr(hardware, "this_machine", lambda device, machine=machine: machine)
        monkeypatch.setattr(hardware, "triton_mode", lambda device, on=compiles: "compiled" if on else "absent")
        assert can_start_early.__wrapped__("cuda") is early
