"""QuantizedLinear: every route multiplies the stored weight, the state is the stored tensors, and nothing is copied."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from labllm.quantization.float8 import float8_weight
from labllm.quantization.module import QuantizedLinear, dequantized, float8_inputs, int8_inputs, kept
from labllm.quantization.rtn import round_to_nearest

X = torch.randn(7, 64, generator=torch.Generator().manual_seed(0))
W = torch.randn(16, 64, generator=torch.Generator().manual_seed(1))
BIAS = torch.randn(16, generator=torch.Generator().manual_seed(2))


@pytest.mark.parametrize("route", [dequantized, kept])
@pytest.mark.parametrize("bias", [None, BIAS])
def test_the_stored_weight_is_multiplied(route, bias: torch.Tensor | None):
    weight = round_to_nearest(W, 4, 32)
    assert torch.equal(QuantizedLinear(weight, bias, route)(X), F.linear(X, weight.dequantize(), bias))


def test_inputs_in_eight_bits_are_near():
    weight = round_to_nearest(W, 8, "channel", symmetric=True)
    exact = F.linear(X, weight.dequantize())
    out = QuantizedLinear(weight, route=int8_inputs)(X)
    assert 0 < (out - exact).norm() / exact.norm() < 0.02
    for granularity in ("channel", "tensor"):
        weight = float8_weight(W, granularity)
        out = QuantizedLinear(weight, route=float8_inputs)(X)
        exact = F.linear(X, weight.dequantize())
        assert 0 < (out - exact).norm() / exact.norm() < 0.04


def test_the_state_is_the_stored_tensors():
    module = QuantizedLinear(round_to_nearest(W, 4, 32), BIAS)
    assert set(module.state_dict()) == {"qweight", "scales", "zeros", "bias"}
    assert set(QuantizedLinear(round_to_nearest(W, 4, 32, symmetric=True)).state_dict()) == {"qweight", "scales"}
    assert set(QuantizedLinear(float8_weight(W)).state_dict()) == {"values", "scales"}
    assert module.nbytes == 16 * 64 // 2 + 16 * 2 * (2 + 1) + 16 * 4


def test_another_dtype_is_prepared_anew_and_another_route_shares_the_tensors():
    module = QuantizedLinear(round_to_nearest(W, 4, 32), BIAS, kept)
    assert module(X).dtype == torch.float32 and module(X.bfloat16()).dtype == torch.bfloat16
    twin = module.with_route(dequantized)
    assert twin.qweight.data_ptr() == module.qweight.data_ptr() and torch.equal(twin(X), module(X))
    assert "bits_per_weight=4.75" in repr(module)
