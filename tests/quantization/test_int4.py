"""INT4 kernels against float64 on the dequantised weight: odd shapes, every group, every way to cut K, and refusals."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from labllm.bench import TOLERANCE, relative_error
from labllm.bench.poison import Poisoned
from labllm.hardware import default_device, triton_mode
from labllm.quantization import int4
from labllm.quantization.kernel_layout import kernel_layout
from labllm.quantization.packed import QuantizedWeight
from labllm.quantization.rtn import round_to_nearest
from labllm.quantization.tiles import Strip, Tile

pytestmark = pytest.mark.skipif(
    triton_mode() in ("absent", "refused"), reason="Triton is not to be had on this platform"
)
DEVICE = default_device()
DTYPES = [torch.float16, pytest.param(torch.bfloat16, marks=pytest.mark.gpu)]


def packed(n: int, k: int, group: int | str, symmetric: bool = True) -> QuantizedWeight:
    generator = torch.Generator(DEVICE).manual_seed(n + k)
    weight = torch.randn(n, k, device=DEVICE, generator=generator) * k**-0.5
    return round_to_nearest(weight, 4, group, symmetric)


def tokens(m: int, k: int, dtype: torch.dtype = torch.float16) -> torch.Tensor:
    return torch.randn(m, k, device=DEVICE, generator=torch.Generator(DEVICE).manual_seed(m)).to(dtype)


def error(out: torch.Tensor, x: torch.Tensor, weight: QuantizedWeight) -> float:
    reference = x.double() @ weight.dequantize(torch.float64).T
    return relative_error(out, reference) / TOLERANCE[str(out.dtype).removeprefix("torch.")]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize(
    ("m", "n", "k", "group"), [(1, 64, 128, 128), (3, 100, 64, 32), (17, 128, 128, 64), (5, 192, 256, 256)]
)
def test_fused_equals_the_dequantised_weight(
    m: int, n: int, k: int, group: int, symmetric: bool, dtype: torch.dtype
) -> None:
    weight, x = packed(n, k, group, symmetric), tokens(m, k, dtype)
    with Poisoned():
        out = int4.fused(x, kernel_layout(weight))
    assert out.shape == (m, n) and out.dtype == dtype
    assert error(out, x, weight) <= 1


@pytest.mark.parametrize("split", [1, 2, 3, 16])
def test_however_k_is_cut_the_sum_is_the_same_and_the_counters_are_zero_again(split: int) -> None:
    weight, x = packed(128, 384, 64), tokens(2, 384)
    kernel = kernel_layout(weight)
    with Poisoned():
        out = int4.fused(x, kernel, Tile(16, 64, 64, split, 4, 2))
    assert error(out, x, weight) <= 1
    assert not kernel.arrivals.any()


def test_a_group_of_scale_zero_adds_nothing() -> None:
    weight, x = packed(64, 256, 64), tokens(2, 256)
    weight.scales[:, 1] = 0
    out = int4.fused(x, kernel_layout(weight), Tile(16, 64, 64, 1, 4, 2))
    assert error(out, x, weight) <= 1


@pytest.mark.parametrize(("symmetric", "group"), [(True, 64), (False, 128), (True, 256)])
@pytest.mark.parametrize("strip", [Strip(1, 128, 2, 1), Strip(4, 256, 4, 2), None])
def test_the_gemv_of_one_token(symmetric: bool, group: int, strip: Strip | None) -> None:
    weight, x = packed(200, 256, group, symmetric), tokens(1, 256)
    with Poisoned():
        assert error(int4.gemv(x, kernel_layout(weight), strip), x, weight) <= 1


@pytest.mark.parametrize(("symmetric", "group"), [(True, 32), (False, 64)])
def test_the_plain_kernel_reads_the_stored_form(symmetric: bool, group: int) -> None:
    for m in (1, 20):
        weight, x = packed(100, 96 if group == 32 else 128, group, symmetric), tokens(m, 96 if group == 32 else 128)
        with Poisoned():
            assert error(int4.plain(x, weight), x, weight) <= 1


def test_one_scale_for_the_whole_matrix() -> None:
    weight, x = packed(64, 128, "tensor"), tokens(3, 128)
    assert error(int4.fused(x, kernel_layout(weight)), x, weight) <= 1
    assert error(int4.plain(x, weight), x, weight) <= 1


@pytest.mark.parametrize("slab", [None, 64])
def test_dequantised_in_slabs(slab: int | None) -> None:
    weight, x = packed(150, 128, 64, symmetric=False), tokens(3, 128)
    assert error(int4.dequantize_then_multiply(x, kernel_layout(weight), slab), x, weight) <= 1


def test_rows_written_out_are_the_stored_weights() -> None:
    weight = packed(150, 192, 64)
    rows = int4.dequantize(kernel_layout(weight), torch.float16, range(64, 150))
    assert relative_error(rows, weight.dequantize(torch.float64)[64:150]) <= TOLERANCE["float16"]


def test_inputs_in_another_order_and_x_with_gaps_between_its_rows() -> None:
    weight = packed(64, 128, 64)
    order = torch.randperm(128, generator=torch.Generator().manual_seed(0)).int().to(DEVICE)
    ordered, x = replace(weight, order=order), tokens(3, 260)[:, 4:132]
    assert error(int4.fused(x, kernel_layout(ordered)), x, ordered) <= 1
    assert error(int4.fused(x, kernel_layout(weight)), x, weight) <= 1


def test_no_tokens_are_no_work() -> None:
    assert int4.linear(tokens(0, 64), kernel_layout(packed(64, 64, 64))).shape == (0, 64)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda w: int4.fused(torch.zeros(2, 64, device=DEVICE), w), "float16 and bfloat16, got torch.float32"),
        (lambda w: int4.fused(tokens(2, 32), w), r"x must be \[M, 64\] for a \[64, 64\] weight; got \[2, 32\]"),
        (lambda w: int4.gemv(tokens(2, 64), w), r"one token, x \[1, K\]; got 2"),
        (lambda w: int4.dequantize(w, torch.float16, range(32, 64)), "start at a multiple of 64"),
        (lambda w: int4.fused(tokens(1, 64), w, Tile(16, 128, 64, 1, 4, 2)), "a tile must divide the weight"),
    ],
)
def test_what_does_not_fit_is_refused(call, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call(kernel_layout(packed(64, 64, 64)))


@pytest.mark.gpu
@pytest.mark.parametrize("m", [1, 16, 64, 128, 512, 700])
@pytest.mark.parametrize(("n", "k"), [(14336, 4096), (4096, 14336)])
def test_the_shapes_of_a_large_model(m: int, n: int, k: int) -> None:
    weight, x = packed(n, k, 128, symmetric=m % 3 == 0), tokens(m, k, torch.bfloat16)
    kernel = kernel_layout(weight)
    for _ in range(3):
        assert error(int4.fused(x, kernel), x, weight) <= 1
        assert error(int4.linear(x, kernel), x, weight) <= 1
    if m == 1:
        assert error(int4.gemv(x, kernel), x, weight) <= 1
