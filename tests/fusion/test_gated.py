"""SwiGLU and GeGLU in one launch: odd shapes, extreme gates, and refusals."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

from labllm.bench import TOLERANCE, relative_error
from labllm.fusion import eager, geglu, swiglu
from labllm.hardware import default_device, triton_mode

pytestmark = pytest.mark.skipif(
    triton_mode() in ("absent", "refused"), reason="Triton is not to be had on this platform"
)
DEVICE = default_device()
DTYPES = [torch.float32, torch.float16, pytest.param(torch.bfloat16, marks=pytest.mark.gpu)]
Gate = Callable[[torch.Tensor], torch.Tensor]


def draw(rows: int, columns: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    generator = torch.Generator(DEVICE).manual_seed(rows + columns)
    return torch.randn(rows, 2 * columns, device=DEVICE, generator=generator).to(dtype)


def reference(gate_up: torch.Tensor, function: Gate) -> torch.Tensor:
    gate, up = gate_up.double().chunk(2, dim=-1)
    return (F.silu if function is swiglu else F.gelu)(gate) * up


def error(out: torch.Tensor, ref: torch.Tensor) -> float:
    return relative_error(out, ref) / TOLERANCE[str(out.dtype).removeprefix("torch.")]


@pytest.mark.parametrize("function", [swiglu, geglu])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (1, 14336), (7, 100), (33, 65), (3, 5000), (300, 64)])
def test_the_gate_of_every_element(function: Gate, rows: int, columns: int, dtype: torch.dtype) -> None:
    gate_up = draw(rows, columns, dtype)
    out = function(gate_up)
    assert out.shape == (rows, columns) and out.dtype == dtype
    assert error(out, reference(gate_up, function)) <= 1


@pytest.mark.parametrize("function", [swiglu, geglu])
def test_far_gates_are_open_or_shut(function: Gate) -> None:
    gates = torch.tensor([[-1e4, -100.0, -0.0, 0.0, 100.0, 1e4]], device=DEVICE)
    out = function(torch.cat((gates, torch.ones_like(gates)), dim=-1))
    assert torch.allclose(out, gates.clamp(min=0))


def test_gelu_is_the_exact_one_over_its_whole_range() -> None:
    gates = torch.linspace(-9, 9, 4096, device=DEVICE)[None]
    out = geglu(torch.cat((gates, torch.ones_like(gates)), dim=-1))
    exact = F.gelu(gates.double())
    assert (out - exact).abs().max() < 2e-6
    assert (out - F.gelu(gates.double(), approximate="tanh")).abs().max() > 1e-4, "the tanh form would show"


@pytest.mark.parametrize(("activation", "function"), [("silu", swiglu), ("gelu", geglu)])
def test_the_formula_in_plain_torch_agrees(activation: str, function: Gate) -> None:
    gate_up = draw(5, 100)
    assert error(eager.gated(gate_up, activation), reference(gate_up, function)) <= 1


def test_no_rows_are_no_work() -> None:
    assert swiglu(draw(0, 64)).shape == (0, 64)


@pytest.mark.parametrize(
    ("gate_up", "message"),
    [
        (torch.zeros(4, 63), r"\[T, 2 I\], gates first in a row, got \[4, 63\]"),
        (torch.zeros(64), r"\[T, 2 I\]"),
        (torch.zeros(4, 0), r"\[T, 2 I\]"),
        (torch.zeros(64, 4).t(), "gate_up must be contiguous"),
        (torch.zeros(4, 64, dtype=torch.int32), "float32, float16 and bfloat16, got torch.int32"),
    ],
)
def test_what_does_not_fit_is_refused(gate_up: torch.Tensor, message: str) -> None:
    for function in (swiglu, geglu):
        with pytest.raises(ValueError, match=message):
            function(gate_up)
