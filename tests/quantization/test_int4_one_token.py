"""The product of one token with its neighbours, and that of hundreds of tokens, against float64; what they refuse."""

from __future__ import annotations

import sys
from dataclasses import replace
from itertools import product as every
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parent))
from int4_cases import DEVICE, error, numbers, packed, product

from labllm.bench.poison import Poisoned
from labllm.hardware import this_machine, triton_mode
from labllm.kernels import sum_parts
from labllm.quantization.kernel_layout import kernel_layout
from labllm.quantization.module import QuantizedLinear
from labllm.quantization.one_token import MOST_INPUTS, one_token, why_not_one_token
from labllm.quantization.packed import QuantizedWeight
from labllm.quantization.routes import fastest
from labllm.quantization.tiles import SMALLEST_SHARED, TokenTile, WideTile, token_bytes, token_tile, wide_tile
from labllm.quantization.wide import why_not_wide, wide

pytestmark = pytest.mark.skipif(
    triton_mode() in ("absent", "refused"), reason="Triton is not to be had on this platform"
)
EPS = 1e-5
HOPPER = pytest.mark.skipif((this_machine().capability or (0, 0))[0] != 9, reason="needs compute capability 9.x")


def surrounded(x: Tensor, weight: QuantizedWeight, gain: Tensor | None, bias: Tensor, gated: bool) -> Tensor:
    """What `one_token` computes, in float64; no residual."""
    wide_x = x.double()
    if gain is not None:
        wide_x = wide_x * torch.rsqrt(wide_x.pow(2).mean(-1, keepdim=True) + EPS) * gain.double()
    y = product(wide_x, weight) + bias.double()
    if gated:
        gate, up = y.chunk(2, dim=1)
        y = F.silu(gate) * up
    return y


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize(
    ("n", "k", "group"),
    [(64, 64, 64), (200, 1152, 128), (96, 4032, 64), (8200, 192, 192), (40, 14336, 256)],
)
def test_one_token(n: int, k: int, group: int, symmetric: bool, dtype: torch.dtype) -> None:
    weight, x = packed(n, k, group, symmetric), numbers(1, k, dtype=dtype)
    bias, residual = numbers(n, dtype=dtype), numbers(1, n, dtype=dtype)
    with Poisoned():
        out = one_token(x, kernel_layout(weight), bias, residual=residual)
    assert error(out, product(x, weight) + bias.double() + residual.double()) <= 1


@pytest.mark.gpu
@pytest.mark.parametrize("scale_dtype", [torch.float16, torch.float32])
@pytest.mark.parametrize("group", [64, 128])
def test_scales_of_another_dtype(group: int, scale_dtype: torch.dtype) -> None:
    weight, x = packed(208, 4096, group, False), numbers(1, 4096)
    weight = replace(weight, scales=weight.scales.to(scale_dtype))
    assert error(one_token(x, kernel_layout(weight)), product(x, weight)) <= 1


@pytest.mark.gpu
@pytest.mark.parametrize(
    "tile", [TokenTile(3, 4, 1, 1), TokenTile(5, 8, 2, 2), TokenTile(20, 8, 4, 1), TokenTile(16, 4, 5, 5)]
)
@pytest.mark.parametrize("gated", [True, False])
def test_one_token_is_the_same_however_it_is_cut(gated: bool, tile: TokenTile) -> None:
    weight, x, bias = packed(640, 2112, 64, gated), numbers(1, 2112), numbers(640)
    out = one_token(x, kernel_layout(weight), bias, gated=gated, tile=tile)
    assert error(out, surrounded(x, weight, None, bias, gated)) <= 1


@pytest.mark.gpu
@pytest.mark.parametrize(("n", "k", "group"), [(448, 2048, 128), (320, 4096, 64), (96, 8256, 64)])
@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("gated", [True, False])
def test_a_token_with_its_norm_and_its_gate(gated: bool, symmetric: bool, n: int, k: int, group: int) -> None:
    weight, x, gain, bias = packed(n, k, group, symmetric), numbers(1, k), 1 + 0.1 * numbers(k), numbers(n)
    out = one_token(x, kernel_layout(weight), bias, gain=gain, eps=EPS, gated=gated)
    assert error(out, surrounded(x, weight, gain, bias, gated)) <= 2, "x times the gain is rounded too"


@pytest.mark.gpu
def test_a_chain_in_a_graph_gives_the_same_bits_each_time() -> None:
    """Each product waits for the one before it, however early it has started and whatever lay in its ring."""
    up, down = kernel_layout(packed(1024, 4096)), kernel_layout(packed(4096, 512, 64))
    x, gain = numbers(1, 4096), 1 + 0.1 * numbers(4096)

    def chain() -> Tensor:
        y = x
        for _ in range(20):
            y = one_token(one_token(y, up, gain=gain, eps=EPS, gated=True), down, residual=y)
        return y

    alone, hidden = chain().clone(), x
    for _ in range(20):
        inner = one_token(hidden, up, gain=gain, eps=EPS, gated=True)
        torch.cuda.synchronize()
        hidden = one_token(inner, down, residual=hidden)
        torch.cuda.synchronize()
    assert torch.equal(alone, hidden)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = chain()
    for _ in range(20):
        captured.zero_()
        graph.replay()
        assert torch.equal(captured, hidden)


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
    with pytest.raises(ValueError, match=r"takes x \[1, K\]; got 2 rows"):
        one_token(numbers(2, 128, dtype=torch.float16), weight)
    assert "multiples of 64; got 32" in str(why_not_one_token(4096, 32, DEVICE))
    assert f"at most {MOST_INPUTS} numbers; got 53248" in str(why_not_one_token(53248, 128, DEVICE))
    assert "got 192 in groups of 64" in str(why_not_wide(192, 64, DEVICE))


@pytest.mark.skipif(DEVICE == "cuda", reason="what a machine without Triton's compiler says")
def test_a_machine_without_the_compiler_says_so() -> None:
    weight, x = kernel_layout(packed(64, 128, 64)), numbers(1, 128, dtype=torch.float16)
    for call in (one_token, wide):
        with pytest.raises(ValueError, match="it needs Triton's compiler and a GPU of compute capability"):
            call(x, weight)


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("named", "message"),
    [
        ({"gain": numbers(128, dtype=torch.float16)}, "for bfloat16 and inputs in order"),
        ({"residual": numbers(1, 63, dtype=torch.float16)}, r"residual must be \[1, 80\]"),
        ({"bias": numbers(80)}, "bias must be .*float16; got .*bfloat16"),
        ({"gated": True}, "multiples of 16 rows each; got 80"),
    ],
    ids=["norm", "residual", "bias", "gate"],
)
def test_neighbours_that_do_not_fit(named: dict[str, Tensor], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        one_token(numbers(1, 128, dtype=torch.float16), kernel_layout(packed(80, 128, 64)), **named)


@pytest.mark.gpu
def test_inputs_in_another_order() -> None:
    weight, x = packed(64, 128, 64), numbers(1, 128)
    order = torch.randperm(128, generator=torch.Generator().manual_seed(0)).int().to(DEVICE)
    ordered = replace(weight, order=order)
    assert error(one_token(x, kernel_layout(ordered)), product(x, ordered)) <= 1


def test_tiles_of_every_shape() -> None:
    for outputs, inputs in every((64, 4096, 6144, 14336, 28672), (128, 4096, 14336)):
        for tokens in (9, 16, 32, 64, 128, 500):
            cut = wide_tile(tokens, outputs, inputs, 132)
            assert cut.block_m in (16, 32, 64, 128) and cut.num_warps in (4, 8) and 1 <= cut.split <= inputs // 128


@pytest.mark.parametrize(("cores", "shared"), [(132, 227 * 1024), (108, 163 * 1024), (20, SMALLEST_SHARED)])
def test_tiles_of_one_token_fit_the_device(cores: int, shared: int) -> None:
    machine = replace(this_machine("cpu"), cores=cores, shared_memory=shared)
    for outputs, inputs, gated in every((64, 4096, 28672, 256000), (64, 896, 4096, 8192, MOST_INPUTS), (True, False)):
        tile = token_tile(outputs, inputs, gated, machine)
        assert token_bytes(tile, outputs, inputs, gated) <= shared
        assert tile.num_warps in (4, 8) and 1 <= tile.ahead <= tile.depth
        assert 32 * 16 * tile.programs >= outputs, "a program keeps the sums of 32 strips"


def test_an_h200_has_two_programs_a_multiprocessor() -> None:
    machine = replace(this_machine("cpu"), cores=132, shared_memory=227 * 1024)
    assert token_tile(14336, 4096, True, machine) == (256, 8, 2, 1)
    assert token_tile(4096, 14336, False, machine) == (256, 4, 3, 3)


@pytest.mark.parametrize("parts", [1, 3])
def test_sums_of_ranges_are_added_up(parts: int) -> None:
    given = torch.randn(parts, 7, 300, generator=torch.Generator().manual_seed(parts)).to(DEVICE)
    out = torch.empty(7, 300, dtype=torch.float16, device=DEVICE)
    with Poisoned():
        sum_parts.sum_parts(out, given, overlap=False)
    assert error(out, given.double().sum(0)) <= 1


def test_sums_of_one_tile_of_tokens_are_cut_no_further_than_keeps_all_multiprocessors_busy() -> None:
    assert wide_tile(128, 4096, 14336, 132).split == 4 and wide_tile(64, 4096, 14336, 132).split == 8
    assert wide_tile(512, 4096, 14336, 132).split == 2, "two programs a multiprocessor hide what they wait for"
    assert wide_tile(128, 14336, 4096, 132).split == 2, "no number of ranges fills the last round"
