"""Residual add and norm in one launch: odd shapes, every row and no other, and refusals."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from labllm.bench import TOLERANCE, relative_error
from labllm.fusion import add_layer_norm_gelu, add_rms_norm, eager, fused_add_rms_norm
from labllm.hardware import default_device, triton_mode

pytestmark = pytest.mark.skipif(
    triton_mode() in ("absent", "refused"), reason="Triton is not to be had on this platform"
)
DEVICE = default_device()
SHAPES = [(1, 64), (1, 4096), (7, 100), (3, 1000), (33, 65), (5, 1), (2, 5120), (1, 16384), (70, 64)]
DTYPES = [torch.float32, torch.float16, pytest.param(torch.bfloat16, marks=pytest.mark.gpu)]


def draw(rows: int, hidden: int, dtype: torch.dtype) -> list[torch.Tensor]:
    """x, residual [T, H], weight and bias [H]."""
    generator = torch.Generator(DEVICE).manual_seed(rows + hidden)
    shapes = (rows, hidden), (rows, hidden), (hidden,), (hidden,)
    return [torch.randn(s, device=DEVICE, generator=generator).to(dtype) for s in shapes]


def close(out: torch.Tensor, ref: torch.Tensor) -> bool:
    return relative_error(out, ref) <= TOLERANCE[str(out.dtype).removeprefix("torch.")]


def rms(x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    total = x.double() + residual.double()
    return F.rms_norm(total, weight.shape, weight.double(), eps)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("rows", "hidden"), SHAPES)
def test_both_results_of_add_and_rms_norm(rows: int, hidden: int, dtype: torch.dtype) -> None:
    x, residual, weight, _ = draw(rows, hidden, dtype)
    kept = x.clone(), residual.clone()
    out, total = add_rms_norm(x, residual, weight, 1e-5)
    assert torch.equal(total, x + residual)
    assert out.dtype == dtype and close(out, rms(x, residual, weight, 1e-5))
    assert torch.equal(x, kept[0]) and torch.equal(residual, kept[1]), "the inputs stay"


@pytest.mark.parametrize(("rows", "hidden"), SHAPES)
def test_in_place_gives_the_same_and_writes_nothing_else(rows: int, hidden: int) -> None:
    x, residual, weight, _ = draw(rows, hidden, torch.float32)
    out, total = add_rms_norm(x, residual, weight)
    rooms = [torch.full((rows + 2, hidden), 7.0, device=DEVICE) for _ in range(2)]
    for room, tensor in zip(rooms, (x, residual), strict=True):
        room[1:-1] = tensor
    assert fused_add_rms_norm(rooms[0][1:-1], rooms[1][1:-1], weight) is None
    assert torch.equal(rooms[0][1:-1], out) and torch.equal(rooms[1][1:-1], total)
    assert all(bool((room[[0, -1]] == 7).all()) for room in rooms)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("rows", "hidden"), SHAPES)
def test_add_layer_norm_and_gelu(rows: int, hidden: int, dtype: torch.dtype) -> None:
    x, residual, weight, bias = draw(rows, hidden, dtype)
    total = (x + residual).double()
    ref = F.gelu(F.layer_norm(total, weight.shape, weight.double(), bias.double(), 1e-5))
    assert close(add_layer_norm_gelu(x, residual, weight, bias), ref)


def test_a_mean_far_from_zero_costs_no_accuracy() -> None:
    x, residual, weight, bias = draw(4, 1000, torch.float32)
    x += 100
    ref = F.gelu(F.layer_norm((x + residual).double(), (1000,), weight.double(), bias.double(), 1e-5))
    assert close(add_layer_norm_gelu(x, residual, weight, bias), ref)


def test_a_row_of_zeros_gives_zeros() -> None:
    zeros, weight = torch.zeros(3, 64, device=DEVICE), torch.ones(64, device=DEVICE)
    assert not add_rms_norm(zeros, zeros, weight)[0].any()


def test_eps_counts() -> None:
    x, residual, weight, _ = draw(2, 64, torch.float32)
    assert close(add_rms_norm(x, residual, weight, 3.0)[0], rms(x, residual, weight, 3.0))


def test_the_formula_in_plain_torch_and_the_library_agree() -> None:
    x, residual, weight, _ = draw(5, 100, torch.float32)
    for function in (eager.add_rms_norm, eager.library_add_rms_norm):
        out, total = function(x, residual, weight, 1e-5)
        assert close(out, rms(x, residual, weight, 1e-5)) and torch.equal(total, x + residual)


def test_no_rows_are_no_work() -> None:
    x, residual, weight, bias = draw(0, 64, torch.float32)
    assert [part.shape for part in add_rms_norm(x, residual, weight)] == [(0, 64), (0, 64)]
    assert add_layer_norm_gelu(x, residual, weight, bias).shape == (0, 64)
    fused_add_rms_norm(x, residual, weight)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x, r, w: (x, r[:2], w), r"both be \[T, H\], got \[4, 64\] and \[2, 64\]"),
        (lambda x, r, w: (x[0], r[0], w), r"both be \[T, H\]"),
        (lambda x, r, w: (x, r, w[:32]), r"weight must be \[64\]"),
        (lambda x, r, w: (x, r.half(), w), "share dtype and device"),
        (lambda x, r, w: (x, r, w.half()), "weight torch.float16"),
        (lambda x, r, w: (x[:, :32], r[:, :32], w[:32]), r"x must be contiguous, got strides \(64, 1\)"),
        (lambda x, r, w: (x, r, w.repeat(2)[::2]), "weight must be contiguous"),
        (lambda x, r, w: (x.double(), r.double(), w.double()), "float32, float16 and bfloat16, got torch.float64"),
        (lambda x, r, w: (x.new_zeros(1, 40000), x.new_zeros(1, 40000), x.new_zeros(40000)), "1 to 32768 elements"),
        (lambda x, r, w: (x[:, :0], r[:, :0], w[:0]), "1 to 32768 elements"),
        (lambda x, r, w: (x, r.to("meta"), w), "on meta"),
    ],
)
def test_what_does_not_fit_is_refused(change, message: str) -> None:
    arguments = change(*draw(4, 64, torch.float32)[:3])
    for function in (add_rms_norm, fused_add_rms_norm):
        with pytest.raises(ValueError, match=message):
            function(*arguments)


def test_layer_norm_names_a_wrong_bias() -> None:
    x, residual, weight, bias = draw(4, 64, torch.float32)
    with pytest.raises(ValueError, match=r"bias must be \[64\]"):
        add_layer_norm_gelu(x, residual, weight, bias[:8])


def test_in_place_needs_two_tensors() -> None:
    x, _, weight, _ = draw(4, 64, torch.float32)
    with pytest.raises(ValueError, match="two tensors"):
        fused_add_rms_norm(x, x, weight)


@pytest.mark.skipif(DEVICE == "cuda", reason="a GPU computes in bfloat16")
def test_the_interpreter_refuses_bfloat16() -> None:
    x, residual, weight, _ = draw(4, 64, torch.bfloat16)
    with pytest.raises(ValueError, match="interpreter computes wrong results in bfloat16"):
        add_rms_norm(x, residual, weight)
