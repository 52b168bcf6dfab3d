"""The product of a few tokens with its neighbours, and that of tens of tokens, against float64; what they refuse."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from labllm.bench import TOLERANCE, relative_error
from labllm.bench.poison import Poisoned
from labllm.hardware import default_device, this_machine, triton_mode
from labllm.kernels import sum_parts
from labllm.quantization.few import few, why_not_few
from labllm.quantization.kernel_layout import kernel_layout
from labllm.quantization.module import QuantizedLinear
from labllm.quantization.packed import QuantizedWeight
from labllm.quantization.routes import fastest
from labllm.quantization.rtn import round_to_nearest
from labllm.quantization.tiles import FewTile, WideTile, few_tile, wide_tile
from labllm.quantization.wide import why_not_wide, wide

pytestmark = pytest.mark.skipif(
    triton_mode() in ("absent", "refused"), reason="Triton is not to be had on this platform"
)
DEVICE = default_device()
EPS = 1e-5
HOPPER = pytest.mark.skipif((this_machine().capability or (0, 0))[0] != 9, reason="needs compute capability 9.x")


def packed(n: int, k: int, group: int = 128, symmetric: bool = True) -> QuantizedWeight:
    weight = torch.randn(n, k, generator=torch.Generator().manual_seed(n + k)).to(DEVICE) * k**-0.5
    return round_to_nearest(weight, 4, group, symmetric)


def numbers(*shape: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).to(DEVICE, dtype)


def product(x: Tensor, weight: QuantizedWeight) -> Tensor:
    return x.double() @ weight.dequantize(torch.float64).T


def error(out: Tensor, reference: Tensor) -> float:
    return relative_error(out, reference) / TOLERANCE[str(out.dtype).removeprefix("torch.")]


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    ("n", "k", "group", "symmetric"), [(64, 128, 64, True), (200, 1152, 128, False), (96, 4096, 256, True)]
)
@pytest.mark.parametrize("m", [1, 2, 4])
def test_few_tokens(m: int, n: int, k: int, group: int, symmetric: bool, dtype: torch.dtype) -> None:
    weight, x = packed(n, k, group, symmetric), numbers(m, k, dtype=dtype)
    bias, residual = numbers(n, dtype=dtype), numbers(m, n, dtype=dtype)
    with Poisoned():
        assert error(few(x, kernel_layout(weight)), product(x, weight)) <= 1
        out = few(x, kernel_layout(weight), bias, residual=residual)
    assert error(out, product(x, weight) + bias.double() + residual.double()) <= 1


@pytest.mark.gpu
@pytest.mark.parametrize("tile", [FewTile(1, 1, 2, 4, 2), FewTile(2, 2, 4, 8, 1), FewTile(1, 1, 4, 16, 3), None])
def test_few_tokens_are_the_same_however_they_are_cut(tile: FewTile | None) -> None:
    weight, x = packed(320, 2048), numbers(2, 2048)
    assert error(few(x, kernel_layout(weight), tile=tile), product(x, weight)) <= 1


@pytest.mark.gpu
@pytest.mark.parametrize("gated", [True, False])
def test_a_token_with_its_norm_and_its_gate(gated: bool) -> None:
    weight, x, gain = packed(448, 2048, symmetric=not gated), numbers(1, 2048), 1 + 0.1 * numbers(2048)
    out = few(x, kernel_layout(weight), gain=gain, eps=EPS, gated=gated)
    wide_x = x.double()
    normed = wide_x * torch.rsqrt(wide_x.pow(2).mean(-1, keepdim=True) + EPS) * gain.double()
    reference = product(normed, weight)
    if gated:
        gate, up = reference.chunk(2, dim=1)
        reference = F.silu(gate) * up
    assert error(out, reference) <= 2, "the norm's result is rounded too"


@pytest.mark.gpu
def test_a_quantised_linear_offers_its_product_for_one_token_only() -> None:
    weight, x, residual = packed(64, 128, 64), numbers(1, 128), numbers(1, 64)
    linear = QuantizedLinear(weight, numbers(64), fastest)
    product_of = linear.inside(x)
    assert product_of is not None and linear.inside(numbers(2, 128)) is None
    assert error(product_of(x, residual=residual), linear(x).double() + residual.double()) <= 2, "one is rounded twice"


@HOPPER
@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    ("n", "k", "group", "symmetric"), [(64, 128, 64, True), (200, 1152, 128, False), (448, 2048, 128, True)]
)
@pytest.mark.parametrize("m", [9, 64, 130])
def test_tens_of_tokens(m: int, n: int, k: int, group: int, symmetric: bool, dtype: torch.dtype) -> None:
    weight, x = packed(n, k, group, symmetric), numbers(m, k, dtype=dtype)
    for tile in (None, WideTile(64, 3, 8, 5), WideTile(32, 1, 4, 4)):
        with Poisoned():
            out = wide(x, kernel_layout(weight), tile)
        assert error(out, product(x, weight)) <= 1.5, "weights are rounded once more where their scales meet them"


@HOPPER
@pytest.mark.gpu
def test_tens_of_tokens_give_the_same_bits_each_time() -> None:
    weight, x = kernel_layout(packed(4096, 4096)), numbers(64, 4096)
    first = wide(x, weight)
    assert all(torch.equal(wide(x, weight), first) for _ in range(50))


def test_what_they_do_not_take_is_said() -> None:
    weight = kernel_layout(packed(64, 128, 64))
    with pytest.raises(ValueError, match="1 to 4 tokens; got 9"):
        few(numbers(9, 128, dtype=torch.float16), weight)
    assert "multiples of 64; got 32" in str(why_not_few(1, 32, DEVICE))
    assert "got 192 in groups of 64" in str(why_not_wide(192, 64, DEVICE))


@pytest.mark.skipif(DEVICE == "cuda", reason="what a machine without Triton's compiler says")
def test_a_machine_without_the_compiler_says_so() -> None:
    weight, x = kernel_layout(packed(64, 128, 64)), numbers(1, 128, dtype=torch.float16)
    for call in (few, wide):
        with pytest.raises(ValueError, match="it needs Triton's compiler and a GPU of compute capability"):
            call(x, weight)


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("named", "message"),
    [
        ({"gain": numbers(128, dtype=torch.float16)}, "for one token in bfloat16"),
        ({"residual": numbers(1, 63, dtype=torch.float16)}, r"residual must be \[1, 80\]"),
        ({"bias": numbers(80)}, "bias must be .*float16; got .*bfloat16"),
        ({"gated": True}, "multiples of 16 rows each; got 80"),
    ],
    ids=["norm", "residual", "bias", "gate"],
)
def test_neighbours_that_do_not_fit(named: dict[str, Tensor], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        few(numbers(1, 128, dtype=torch.float16), kernel_layout(packed(80, 128, 64)), **named)


@pytest.mark.gpu
def test_inputs_in_another_order() -> None:
    weight, x = packed(64, 128, 64), numbers(4, 128)
    order = torch.randperm(128, generator=torch.Generator().manual_seed(0)).int().to(DEVICE)
    ordered = replace(weight, order=order)
    assert error(few(x, kernel_layout(ordered)), product(x, ordered)) <= 1


def test_tiles_of_every_shape() -> None:
    for outputs in (64, 4096, 6144, 14336, 28672):
        for inputs in (128, 4096, 14336):
            tile = few_tile(1, inputs, False)
            assert all(side & (side - 1) == 0 for side in tile[:4]) and tile.depth >= 1
            for tokens in (9, 16, 32, 64, 128, 500):
                cut = wide_tile(tokens, outputs, inputs, 132)
                assert cut.block_m in (16, 32, 64, 128) and cut.num_warps in (4, 8) and 1 <= cut.split <= inputs // 128


def test_sums_of_many_tokens_are_cut_no_further_than_keeps_all_multiprocessors_busy() -> None:
    assert wide_tile(128, 4096, 14336, 132).split == 4 and wide_tile(64, 4096, 14336, 132).split == 8
    assert wide_tile(512, 4096, 14336, 132).split == 1, "128 tiles are enough"
    assert wide_tile(128, 14336, 4096, 132).split == 2, "no number of ranges fills the last round"


@pytest.mark.parametrize("parts", [1, 3])
def test_sums_of_ranges_are_added_up(parts: int) -> None:
    given = torch.randn(parts, 7, 300, generator=torch.Generator().manual_seed(parts)).to(DEVICE)
    out = torch.empty(7, 300, dtype=torch.float16, device=DEVICE)
    with Poisoned():
        sum_parts.sum_parts(out, given, overlap=False)
    assert error(out, given.double().sum(0)) <= 1
