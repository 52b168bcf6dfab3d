"""W8A8: rows rounded as the formula says, whole numbers summed exactly, and refusals."""

from __future__ import annotations

import pytest
import torch

from labllm.bench import TOLERANCE, relative_error
from labllm.bench.poison import Poisoned
from labllm.hardware import default_device, triton_mode
from labllm.quantization import eight_bits
from labllm.quantization.activations import float8_rows, int8_rows
from labllm.quantization.float8 import float8_weight
from labllm.quantization.rtn import round_to_nearest

pytestmark = pytest.mark.skipif(
    triton_mode() in ("absent", "refused"), reason="Triton is not to be had on this platform"
)
DEVICE = default_device()


def draw(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape, device=DEVICE, generator=torch.Generator(DEVICE).manual_seed(sum(shape))).to(dtype)


@pytest.mark.parametrize("shape", [(1, 1), (3, 100), (2, 4096)])
def test_rows_are_rounded_to_even_and_a_row_of_zeros_stays(shape: tuple[int, int]) -> None:
    x = draw(*shape)
    x[0] = 0
    with Poisoned():
        values, scales = eight_bits.quantize_rows(x, torch.int8)
    expected, expected_scales = int8_rows(x)
    assert torch.allclose(scales, expected_scales[:, 0])
    assert (values.int() - expected.int()).abs().max() <= 1, "one level where a division is rounded otherwise"
    assert (values != expected).float().mean() < 0.01


@pytest.mark.parametrize("tile", [None, eight_bits.Tile(16, 64, 64, 3, 4, 2)])
@pytest.mark.parametrize(("m", "n", "k"), [(1, 64, 128), (3, 100, 300), (20, 130, 256)])
def test_int8_products_are_exact(m: int, n: int, k: int, tile: eight_bits.Tile | None) -> None:
    stored = round_to_nearest(draw(n, k), 8, "channel", symmetric=True)
    weight, x = eight_bits.int8_weight(stored), draw(m, k)
    with Poisoned():
        out = eight_bits.int8_linear(x, weight, tile)
    values, scales = eight_bits.quantize_rows(x, torch.int8)
    own = (values.double() * scales.double()[:, None]) @ stored.dequantize(torch.float64).T
    assert relative_error(out, own) <= TOLERANCE["float32"]
    assert not weight.arrivals.any()


def test_the_int8_weight_stands_for_the_stored_one() -> None:
    stored = round_to_nearest(draw(10, 64), 8, "channel", symmetric=True)
    assert torch.equal(eight_bits.int8_weight(stored).dequantize(), stored.dequantize())


@pytest.mark.gpu
@pytest.mark.parametrize("m", [1, 16, 100])
def test_float8_rows_and_products(m: int) -> None:
    if torch.cuda.get_device_capability() < (8, 9):
        pytest.skip("FP8 arithmetic needs compute capability 8.9")
    weight, x = float8_weight(draw(256, 512)), draw(m, 512, dtype=torch.bfloat16)
    values, scales = eight_bits.quantize_rows(x, torch.float8_e4m3fn)
    assert relative_error(values.float(), float8_rows(x)[0].float()) < 1e-2
    own = (values.double() * scales.double()[:, None]) @ weight.dequantize(torch.float64).T
    assert relative_error(eight_bits.float8_linear(x, weight), own) <= TOLERANCE["bfloat16"]


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="symmetric weights of 8 bits with one scale a channel; got 4 bits"):
        eight_bits.int8_weight(round_to_nearest(draw(4, 64), 4, 32, symmetric=True))
    weight = eight_bits.int8_weight(round_to_nearest(draw(4, 64), 8, "channel", symmetric=True))
    with pytest.raises(ValueError, match=r"x must be \[M, 64\]"):
        eight_bits.int8_linear(draw(2, 32), weight)
    with pytest.raises(ValueError, match="K up to 32768"):
        eight_bits.quantize_rows(draw(1, 32769), torch.int8)
