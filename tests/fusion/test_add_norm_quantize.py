"""Residual add, RMSNorm and quantisation in one launch: odd shapes, the scale's convention, and refusals."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from labllm.bench import KernelClock, measure, relative_error
from labllm.fusion import add_rms_norm_quantize, eager
from labllm.fusion.codes import LIMITS, CloseCodes, Codes, half_step, unexplained
from labllm.fusion.quantize_ladder import ADD_RMS_NORM_QUANTIZE, QuantizedRows
from labllm.hardware import default_device, triton_mode

DEVICE = default_device()
INT8, FLOAT8 = torch.int8, torch.float8_e4m3fn
SHAPES = [(1, 64), (1, 4096), (7, 100), (33, 65), (5, 1), (70, 64)]
LADDER = dataclasses.replace(ADD_RMS_NORM_QUANTIZE, clock=KernelClock(budget=0, most=1))
needs_triton = pytest.mark.skipif(
    triton_mode() in ("absent", "refused"), reason="Triton is not to be had on this platform"
)


def draw(rows: int, hidden: int, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    """x, residual [T, H] and weight [H]."""
    generator = torch.Generator(DEVICE).manual_seed(rows + hidden)
    shapes = (rows, hidden), (rows, hidden), (hidden,)
    return [torch.randn(s, device=DEVICE, generator=generator).to(dtype) for s in shapes]


@pytest.mark.parametrize("codes", ["int8", pytest.param("float8", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("dtype", ["float32", "float16", pytest.param("bfloat16", marks=pytest.mark.gpu)])
@pytest.mark.parametrize(("rows", "hidden"), [*SHAPES, (300, 65)])
@needs_triton
def test_the_kernel_is_right(rows: int, hidden: int, dtype: str, codes: str) -> None:
    (record,) = measure(LADDER.only("triton"), QuantizedRows(rows, hidden, dtype, codes), device=DEVICE)
    assert record.status == "ok", record.reason


@pytest.mark.parametrize("codes", ["int8", "float8"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize(("rows", "hidden"), [*SHAPES, (300, 65)])
def test_eager_is_right_everywhere(rows: int, hidden: int, dtype: str, codes: str) -> None:
    (record,) = measure(LADDER.only("eager"), QuantizedRows(rows, hidden, dtype, codes), device="cpu")
    assert record.status == "ok", record.reason
    if hidden > 1:
        low, high = {"int8": (1e-3, 2e-2), "float8": (1e-2, 4e-2)}[codes]
        assert low < record.metrics["distance to exact"].value < high


@pytest.mark.slow
@pytest.mark.parametrize("codes", ["int8", "float8"])
def test_the_compilers_rung_is_right(codes: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LABLLM_FAST", raising=False)
    (record,) = measure(LADDER.only("torch.compile"), QuantizedRows(33, 100, "float16", codes), device="cpu")
    assert record.status == "ok" or record.reason.startswith("torch.compile cannot compile here"), record.reason


@needs_triton
def test_codes_times_scales_are_the_norm_and_the_largest_code_is_the_limit() -> None:
    x, residual, weight = draw(9, 100)
    kept = x.clone(), residual.clone()
    codes, scales, total = add_rms_norm_quantize(x, residual, weight, INT8, 1e-5)
    norm = eager.add_rms_norm(x, residual, weight, 1e-5)[0]
    assert (codes.shape, codes.dtype, scales.shape, scales.dtype) == ((9, 100), INT8, (9, 1), torch.float32)
    assert torch.equal(total, x + residual)
    assert bool((codes.abs().amax(1) == 127).all())
    assert bool(((codes * scales - norm).abs() <= scales * 0.501).all())
    assert torch.equal(x, kept[0]) and torch.equal(residual, kept[1]), "the inputs stay"


@needs_triton
def test_halves_go_to_the_even_number() -> None:
    """127 sets the scale to 1, so that the other elements are their own codes before rounding."""
    x = torch.tensor([[0.5, 1.5, -2.5, 127.0]], device=DEVICE)
    weight = x.square().mean().sqrt().repeat(4)
    codes, scales, _ = add_rms_norm_quantize(x, torch.zeros_like(x), weight, INT8, 0.0)
    assert abs(float(scales) - 1) < 1e-6 and codes.tolist()[0][3] == 127
    assert all(code in near for code, near in zip(codes.tolist()[0], ([0, 1], [1, 2], [-3, -2]), strict=False))


@pytest.mark.parametrize("dtype", [INT8, pytest.param(FLOAT8, marks=pytest.mark.gpu)])
@needs_triton
def test_rows_of_zeros_and_no_rows(dtype: torch.dtype) -> None:
    zeros, weight = torch.zeros(3, 64, device=DEVICE), torch.ones(64, device=DEVICE)
    codes, scales, _ = add_rms_norm_quantize(zeros, zeros, weight, dtype)
    assert not codes.float().any() and bool((scales == 1).all())
    assert [len(part) for part in add_rms_norm_quantize(zeros[:0], zeros[:0], weight, dtype)] == [0, 0, 0]


@needs_triton
def test_what_does_not_fit_is_refused() -> None:
    x, residual, weight = draw(4, 64)
    with pytest.raises(ValueError, match=r"quantise to torch.int8 and torch.float8_e4m3fn, got torch.float16"):
        add_rms_norm_quantize(x, residual, weight, torch.float16)
    with pytest.raises(ValueError, match=r"weight must be \[64\]"):
        add_rms_norm_quantize(x, residual, weight[:8], INT8)
    with pytest.raises(ValueError, match="x must be contiguous"):
        add_rms_norm_quantize(x.T.contiguous().T, residual, weight, INT8)


@pytest.mark.skipif(triton_mode("cpu") != "interpreted", reason="on this CPU Triton does not run")
def test_the_interpreter_refuses_float8() -> None:
    x, residual, weight = (t.cpu() for t in draw(4, 64))
    with pytest.raises(ValueError, match="halves numbers that it rounds up in float8: on a CPU choose"):
        add_rms_norm_quantize(x, residual, weight, FLOAT8)
    (record,) = measure(LADDER.only("triton"), QuantizedRows(4, 64, "float32", "float8"), device="cpu")
    assert record.status == "cannot run here" and "choose int8" in record.reason


@pytest.mark.parametrize("dtype", [INT8, FLOAT8])
def test_rounding_is_allowed_for_and_nothing_else(dtype: torch.dtype) -> None:
    limit = LIMITS[dtype]
    exact = torch.linspace(-limit, limit, 1001, dtype=torch.float64)[None]
    rounded = exact.round().to(dtype) if dtype == INT8 else exact.to(dtype)
    assert relative_error(unexplained(rounded, exact), exact) < 1e-12
    off = (rounded.float() + 2.2 * half_step(exact, dtype).float()).clamp(-limit, limit).to(dtype)
    assert relative_error(unexplained(off, exact), exact) > 2e-3


def test_a_wrong_scale_or_code_shows() -> None:
    exact = torch.randn(300, 64, dtype=torch.float64)
    scale = exact.abs().amax(1, keepdim=True) / 127
    want = lambda rows: (Codes(exact[rows] / scale[rows], scale[rows]),)  # noqa: E731
    codes = (exact / scale).round().to(INT8)
    judge = CloseCodes()
    assert judge((Codes(codes, scale.float()),), want, "float16", 0).ok
    assert not judge((Codes(codes, 1.01 * scale.float()),), want, "float16", 0).ok
    assert not judge((Codes((exact / (2 * scale)).round().to(INT8), 2 * scale.float()),), want, "float16", 0).ok
    assert not judge((Codes(torch.roll(codes, 1, 0), scale.float()),), want, "float16", 0).ok
    assert not judge((Codes((exact / scale).trunc().to(INT8), scale.float()),), want, "float16", 0).ok


def test_bytes_by_hand() -> None:
    w = QuantizedRows(16384, 4096, "bfloat16", "float8")
    elements = 16384 * 4096
    assert LADDER.cost(w).bytes == 7 * elements + 4 * 16384 + 2 * 4096
    assert LADDER["eager"].moved(w).bytes == (42 + 45) * elements + 12 * 16384
    assert LADDER["eager"].moved(dataclasses.replace(w, codes="int8")).bytes == (42 + 53) * elements + 12 * 16384
