"""The skinny linear layer against float64: few tokens, uneven sizes, and each neighbour it may draw in."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from labllm.bench import TOLERANCE, relative_error
from labllm.fusion.skinny import SkinnyTile, skinny_linear, skinny_tile
from labllm.hardware import triton_mode

interpreted = pytest.mark.skipif(triton_mode("cpu") != "interpreted", reason="Triton is not interpreted here")
EPS = 1e-5
NEIGHBOURS = {
    "none": {},
    "bias": {"bias": True},
    "norm": {"gain": True},
    "residual": {"residual": True},
    "gate": {"gated": True},
    "all": {"bias": True, "gain": True, "residual": True, "gated": True},
}


def case(tokens: int, outputs: int, inputs: int, which: str, dtype: torch.dtype, device: str = "cpu"):
    """(x, weight, further arguments, float64 answer)."""
    generator, asked = torch.Generator().manual_seed(tokens + outputs), NEIGHBOURS[which]
    gated = asked.get("gated", False)
    rows = 2 * outputs if gated else outputs
    shapes = {"x": (tokens, inputs), "weight": (rows, inputs), "bias": (rows,), "gain": (inputs,)}
    shapes["residual"] = (tokens, outputs)
    made = {name: torch.randn(shape, generator=generator).to(device, dtype) for name, shape in shapes.items()}
    wide = {name: tensor.double() for name, tensor in made.items()}
    x = F.rms_norm(wide["x"], (inputs,), wide["gain"], EPS) if asked.get("gain") else wide["x"]
    y = F.linear(x, wide["weight"], wide["bias"] if asked.get("bias") else None)
    if gated:
        gate, up = y.chunk(2, dim=-1)
        y = F.silu(gate) * up
    y = y + wide["residual"] if asked.get("residual") else y
    given = {name: made[name] for name in ("bias", "gain", "residual") if asked.get(name)}
    return made["x"], made["weight"], given | {"gated": gated, "eps": EPS}, y


@interpreted
@pytest.mark.parametrize("which", NEIGHBOURS)
@pytest.mark.parametrize(("tokens", "outputs", "inputs"), [(1, 6, 96), (3, 5, 33)])
def test_against_float64(tokens: int, outputs: int, inputs: int, which: str) -> None:
    x, weight, given, expected = case(tokens, outputs, inputs, which, torch.float32)
    assert relative_error(skinny_linear(x, weight, **given), expected) < TOLERANCE["float32"]


@interpreted
@pytest.mark.parametrize("tile", [SkinnyTile(1, 32, 1, 1), SkinnyTile(8, 64, 4, 3), skinny_tile(2, 11, 80, True)])
def test_every_tile_gives_the_same(tile: SkinnyTile) -> None:
    x, weight, given, expected = case(2, 11, 80, "all", torch.float16)
    assert relative_error(skinny_linear(x, weight, tile=tile, **given), expected) < TOLERANCE["float16"]


@pytest.mark.gpu
@pytest.mark.parametrize("which", NEIGHBOURS)
@pytest.mark.parametrize("tokens", [1, 2, 3, 4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_on_a_gpu(dtype: torch.dtype, tokens: int, which: str) -> None:
    for outputs, inputs in ((4096, 14336), (1000, 520)):
        x, weight, given, expected = case(tokens, outputs, inputs, which, dtype, "cuda")
        out = skinny_linear(x, weight, **given)
        assert relative_error(out, expected) < TOLERANCE[str(dtype).removeprefix("torch.")]


@interpreted
def test_what_is_refused() -> None:
    x, weight = torch.zeros(2, 8), torch.zeros(6, 8)
    with pytest.raises(ValueError, match="1 to 4 tokens"):
        skinny_linear(torch.zeros(5, 8), weight)
    with pytest.raises(ValueError, match=r"weight must be \[N, 8\]"):
        skinny_linear(x, torch.zeros(6, 9))
    with pytest.raises(ValueError, match=r"weight must be \[2 N, 8\]"):
        skinny_linear(x, torch.zeros(5, 8), gated=True)
    with pytest.raises(ValueError, match=r"residual must be \[2, 6\]"):
        skinny_linear(x, weight, residual=torch.zeros(2, 5))
    with pytest.raises(ValueError, match=r"gain must be \[8\]"):
        skinny_linear(x, weight, gain=torch.zeros(6))
    with pytest.raises(ValueError, match="share dtype"):
        skinny_linear(x, weight.half())
