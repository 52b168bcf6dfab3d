"""INT8 and FP8 of activations and FP8 weights: scales a row or a tensor, the error that the format allows."""

from __future__ import annotations

import pytest
import torch

from labllm.bench import relative_error
from labllm.quantization.activations import FLOAT8, float8_rows, float8_tensor, int8_rows
from labllm.quantization.float8 import Float8Weight, float8_weight

ROWWISE = {"int8": int8_rows, "float8": float8_rows, "float8 tensor": float8_tensor}


def drawn() -> torch.Tensor:
    return torch.randn(20, 64, generator=torch.Generator().manual_seed(0)) * torch.logspace(-3, 3, 20)[:, None]


@pytest.mark.parametrize("name", ROWWISE)
def test_values_times_scales_are_near(name: str):
    x = drawn()
    values, scales = ROWWISE[name](x)
    assert values.shape == x.shape and scales.dtype == torch.float32
    gap = (values.float() * scales - x).abs()
    if name == "int8":
        assert values.dtype == torch.int8 and (gap <= 0.5001 * scales).all()
    else:
        assert values.dtype == FLOAT8 and scales.shape == ((1, 1) if "tensor" in name else (20, 1))
        assert (gap <= x.abs() / 16 + scales * 2**-10).all()


@pytest.mark.parametrize("name", ROWWISE)
def test_rows_of_zeros_stay_zero(name: str):
    values, scales = ROWWISE[name](torch.zeros(3, 8))
    assert (scales == 1).all() and (values.float() == 0).all()
    assert ROWWISE[name](torch.zeros(0, 8))[0].shape == (0, 8)


def test_an_outlier_costs_int8_its_row_and_float8_little():
    x = torch.randn(1, 256, generator=torch.Generator().manual_seed(0))
    x[0, 0] = 1000.0
    rest = {name: relative_error((v.float() * s)[:, 1:], x[:, 1:]) for name, (v, s) in
            {"int8": int8_rows(x), "float8": float8_rows(x)}.items()}  # fmt: skip
    assert rest["int8"] > 0.8 and rest["float8"] < 0.1


@pytest.mark.parametrize("granularity", ["channel", "tensor"])
def test_float8_weights(granularity: str):
    weight = float8_weight(drawn(), granularity)
    assert weight.shape == (20, 64) and relative_error(weight.dequantize(), drawn()) < 0.04
    assert weight.nbytes == 20 * 64 + 4 * (20 if granularity == "channel" else 1)
    assert weight.bits_per_weight == 8 * weight.nbytes / (20 * 64)
    assert torch.equal(weight.dequantize(torch.float64).float(), weight.dequantize())


def test_what_is_no_float8_weight_is_refused():
    with pytest.raises(ValueError, match="one scale a 'channel' or a 'tensor'; got groups of 32"):
        float8_weight(drawn(), 32)
    with pytest.raises(ValueError, match="values must be"):
        Float8Weight(drawn(), torch.ones(20, 1))
    with pytest.raises(ValueError, match=r"scales must be \[20, 1\] or \[1, 1\]; got \[20\]"):
        Float8Weight(drawn().to(FLOAT8), torch.ones(20))
