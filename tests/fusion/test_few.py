"""The linear layer of some tens of tokens against float64: shared rows, gates, uneven sizes, and counters at rest."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from labllm.bench import TOLERANCE, relative_error
from labllm.fusion import few
from labllm.fusion.few import BLOCK_N, FewTile, few_linear, few_tile, is_few
from labllm.hardware import Machine, this_machine, triton_mode

interpreted = pytest.mark.skipif(triton_mode("cpu") != "interpreted", reason="Triton is not interpreted here")
H200 = Machine("", "cuda", 0, 132, 0, 232448, (9, 0), None)
SMALL = Machine("", "cuda", 0, 46, 0, 101376, (8, 9), None)


def case(tokens: int, outputs: int, inputs: int, gated: bool, dtype: torch.dtype, device: str = "cpu"):
    """(x, weight, bias, float64 answer); outputs are about one, so that float16 holds a gate's product too."""
    generator, rows = torch.Generator().manual_seed(tokens + outputs), 2 * outputs if gated else outputs
    x, weight, bias = (
        (size * torch.randn(shape, generator=generator)).to(device, dtype)
        for shape, size in (((tokens, inputs), 1), ((rows, inputs), inputs**-0.5), ((rows,), 1))
    )
    y = F.linear(x.double(), weight.double(), bias.double())
    if gated:
        gate, up = y.chunk(2, dim=-1)
        y = F.silu(gate) * up
    return x, weight, bias, y


@interpreted
@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("tile", [FewTile(16, 32, 1, 4, 1), FewTile(32, 32, 3, 4, 2), None])
@pytest.mark.parametrize(("tokens", "outputs", "inputs"), [(1, 40, 96), (20, 33, 130)])
def test_against_float64(tokens: int, outputs: int, inputs: int, tile: FewTile | None, gated: bool) -> None:
    x, weight, bias, expected = case(tokens, outputs, inputs, gated, torch.float16)
    tile = tile and tile._replace(split=1 if gated else tile.split)
    assert relative_error(few_linear(x, weight, bias, gated=gated, tile=tile), expected) < TOLERANCE["float16"]
    assert not few._arrivals(x.device).any()


@pytest.mark.gpu
@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("tokens", [2, 17, 32, 64, 128])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_on_a_gpu(dtype: torch.dtype, tokens: int, gated: bool) -> None:
    for outputs, inputs in ((4096, 14336), (6144, 4096), (1000, 520)):
        x, weight, bias, expected = case(tokens, outputs, inputs, gated, dtype, "cuda")
        for _ in range(2):
            out = few_linear(x, weight, bias, gated=gated)
            assert relative_error(out, expected) < TOLERANCE[str(dtype).removeprefix("torch.")]
    assert not few._arrivals(x.device).any()


@pytest.mark.parametrize("machine", [H200, SMALL], ids=["H200", "99 KB"])
@pytest.mark.parametrize("rows", [16, 32, 64, 128])
@pytest.mark.parametrize(
    ("outputs", "inputs", "gated"), [(6144, 4096, False), (4096, 14336, False), (14336, 4096, True)]
)
def test_tiles_fit_the_device(outputs: int, inputs: int, gated: bool, rows: int, machine: Machine) -> None:
    tile = few_tile(rows, outputs, inputs, gated, machine)
    stage = 2 * tile.block_k * (tile.block_n * (2 if gated else 1) + rows)
    assert tile.stages * stage <= machine.shared_memory and tile.stages >= 2
    tiles = -(-outputs // tile.block_n)
    assert tile.split == 1 or tiles * tile.split <= machine.cores < tiles * (tile.split + 1)


def test_the_library_keeps_what_it_does_in_one_launch() -> None:
    x, square = torch.zeros(32, 64, dtype=torch.float16), torch.zeros(64, 64, dtype=torch.float16)
    cores = this_machine("cpu").cores
    wide = torch.zeros(BLOCK_N * cores, 64, dtype=torch.float16)
    assert is_few(x, square, gated=True) and is_few(x, wide, gated=True) and not is_few(x, wide)
    assert is_few(x, wide[: BLOCK_N * cores // 2]) and not is_few(x[:1], square, gated=True)
    assert not is_few(x.float(), square.float(), gated=True) and not is_few(x.repeat(5, 1), square, gated=True)


@interpreted
def test_what_is_refused() -> None:
    x, weight = torch.zeros(2, 8, dtype=torch.float16), torch.zeros(6, 8, dtype=torch.float16)
    with pytest.raises(ValueError, match="1 to 128 tokens"):
        few_linear(torch.zeros(129, 8, dtype=torch.float16), weight)
    with pytest.raises(ValueError, match=r"use F\.linear"):
        few_linear(x.float(), weight.float())
    with pytest.raises(ValueError, match=r"weight must be \[2 N, 8\]"):
        few_linear(x, weight[:5], gated=True)
    with pytest.raises(ValueError, match=r"bias must be \[6\]"):
        few_linear(x, weight, weight[0])
