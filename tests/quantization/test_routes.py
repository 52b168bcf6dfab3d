"""Routes and the linear that quantises as it loads: the same numbers as the dequantised weight, within x's rounding."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from labllm.bench import relative_error
from labllm.hardware import can, default_device
from labllm.models.load import from_config
from labllm.models.pico.shape import PICO
from labllm.quantization import routes, torch_int8
from labllm.quantization.activations import int8_rows
from labllm.quantization.eight_bits import int8_weight
from labllm.quantization.linear import QuantizingLinear, int4_linears
from labllm.quantization.module import dequantized
from labllm.quantization.packed import QuantizedWeight
from labllm.quantization.rtn import round_to_nearest
from labllm.quantization.torch_int4 import torch_linear, torch_weight

DEVICE = default_device()
DTYPE = torch.bfloat16 if can("bf16", DEVICE) else torch.float16


def packed(n: int, k: int, group: int | str = 64, bits: int = 4, symmetric: bool = True) -> QuantizedWeight:
    weight = torch.randn(n, k, generator=torch.Generator().manual_seed(n)).to(DEVICE) * k**-0.5
    return round_to_nearest(weight, bits, group, symmetric)


def tokens(m: int, k: int) -> torch.Tensor:
    return torch.randn(m, k, generator=torch.Generator().manual_seed(m)).to(DEVICE, DTYPE)


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("m", [1, 5, 40])
def test_the_fastest_route_of_four_bits(m: int, symmetric: bool, ordered: bool) -> None:
    weight = packed(128, 256, symmetric=symmetric)
    if ordered:
        order = torch.randperm(256, generator=torch.Generator().manual_seed(1)).int().to(DEVICE)
        weight = replace(weight, order=order)
    x = tokens(m, 256)
    out = routes.fastest(weight, DTYPE)(x)
    assert out.dtype == DTYPE
    assert relative_error(out, x.double() @ weight.dequantize(torch.float64).T) < 1e-2


def test_a_weight_without_a_kernel_is_dequantised() -> None:
    assert routes.route_for(packed(128, 96, 48, bits=8), DTYPE) is dequantized
    assert routes.route_for(packed(10, 64, bits=4), torch.float32) is dequantized, "10 rows fit no operator"


@pytest.mark.skipif(DEVICE != "cpu", reason="the CPU's operator")
def test_the_operator_of_the_cpu_takes_any_dtype_and_multiplies_in_bfloat16() -> None:
    weight, x = packed(64, 128, symmetric=False), torch.randn(3, 128)
    out = torch_linear(x, torch_weight(weight))
    assert out.dtype == torch.float32
    assert relative_error(out, x.double() @ weight.dequantize(torch.float64).T) < 1.5e-2


@pytest.mark.parametrize("m", [1, 33])
def test_integers_are_multiplied_as_integers_without_triton_too(m: int) -> None:
    weight, x = packed(64, 128, "channel", bits=8), tokens(m, 128)
    values, scales = int8_rows(x)
    own = (values.double() * scales.double()) @ weight.dequantize(torch.float64).T
    for out in (routes.int8(weight, DTYPE)(x), torch_int8.int8_linear(x, int8_weight(weight))):
        assert out.dtype == DTYPE and relative_error(out, own) < 1e-2
    with pytest.raises(ValueError, match=r"multiples of 8; got \[60, 128\]"):
        torch_int8.int8_linear(x, int8_weight(packed(60, 128, "channel", bits=8)))


def test_integer_routes_refuse_what_they_cannot_take() -> None:
    with pytest.raises(ValueError, match="groups of 32, 64, 128 or 256; got 8 bits in 64"):
        routes.torch_int4(packed(64, 64, bits=8), DTYPE)
    with pytest.raises(ValueError, match="FP8 route takes a Float8Weight; got QuantizedWeight"):
        routes.float8(packed(64, 64), DTYPE)


def test_a_linear_quantises_as_it_loads_and_keeps_its_bias() -> None:
    linear = int4_linears(64)("model.layers.0.mlp.up_proj", 128, 64, True)
    assert isinstance(linear, QuantizingLinear)
    with pytest.raises(RuntimeError, match="no weight yet"):
        linear(tokens(1, 128))
    weight, bias = torch.randn(64, 128).to(DEVICE, DTYPE), torch.randn(64).to(DEVICE, DTYPE)
    linear.load_tensor("weight", weight)
    linear.load_tensor("bias", bias)
    rounded = round_to_nearest(weight, 4, 64, symmetric=True)
    x = tokens(3, 128)
    assert relative_error(linear(x), F.linear(x.double(), rounded.dequantize(torch.float64), bias.double())) < 1e-2
    assert linear.nbytes == rounded.nbytes
    with pytest.raises(ValueError, match=r"takes weight \(64, 128\); got weight \(64, 64\)"):
        linear.load_tensor("weight", weight[:, :64])


def test_a_model_of_int4_linears_says_what_its_dequantised_weights_say() -> None:
    ids = torch.arange(1, 33, device=DEVICE)[None]
    with torch.inference_mode():
        exact = from_config(PICO, DEVICE, DTYPE).forward_dense(ids)
        slow, fast = (
            from_config(PICO, DEVICE, DTYPE, linear=int4_linears(64, route=route)).forward_dense(ids)
            for route in (dequantized, routes.fastest)
        )
    assert relative_error(fast, slow) < 3e-2 < relative_error(fast, exact), "rounded weights show, kernels do not"
