"""The kernels' order of four-bit weights: an inverse bit by bit, one word by hand, and refusals."""

from __future__ import annotations

import pytest
import torch

from labllm.quantization.kernel_layout import kernel_layout
from labllm.quantization.packed import QuantizedWeight, pack


def weight(codes: torch.Tensor, group: int = 64) -> QuantizedWeight:
    return QuantizedWeight(pack(codes, 4), torch.ones(codes.shape[0], codes.shape[1] // group), None, 4, group)


@pytest.mark.parametrize(("n", "k", "group"), [(64, 64, 32), (1, 64, 64), (130, 256, 128), (100, 192, 64)])
def test_codes_come_back_bit_by_bit(n: int, k: int, group: int) -> None:
    codes = torch.randint(0, 16, (n, k), generator=torch.Generator().manual_seed(n))
    kernel = kernel_layout(weight(codes, group))
    assert torch.equal(kernel.codes(), codes.to(torch.uint8))
    assert kernel.words.numel() * 8 == -(-n // 64) * 64 * k, "half a byte a weight, rows rounded up to 64"


def test_the_word_of_one_lane_by_hand() -> None:
    codes = torch.zeros(64, 64, dtype=torch.int64)
    strip, g, t, block = 2, 5, 3, 1  # rows 37 and 45, columns 22, 23, 30, 31
    row, column = 16 * strip + g, 16 * block + 2 * t
    for nibble, (r, c) in enumerate([(0, 0), (8, 0), (0, 8), (8, 8), (0, 1), (8, 1), (0, 9), (8, 9)]):
        codes[row + r, column + c] = nibble + 1
    words = kernel_layout(weight(codes)).words
    assert f"{int(words[0, 0, strip, g, t, block]) & 0xFFFFFFFF:08x}" == "87654321"
    assert int((words != 0).sum()) == 1


def test_scales_lie_group_by_group_and_are_zero_past_the_last_row() -> None:
    stored = weight(torch.zeros(3, 128, dtype=torch.int64))
    stored.scales.copy_(torch.arange(6.0).view(3, 2))
    scales = kernel_layout(stored).scales
    assert scales.shape == (2, 64) and scales.is_contiguous()
    assert torch.equal(scales[:, :3], stored.scales.T) and not scales[:, 3:].any()


@pytest.mark.parametrize(
    ("bits", "k", "group", "message"),
    [
        (8, 64, 64, "take weights of 4 bits; got 8"),
        (4, 96, 32, "K in multiples of 64"),
        (4, 192, 48, "in groups of 32 or of multiples of 64; got K 192 in groups of 48"),
    ],
)
def test_what_the_kernels_cannot_take_is_refused(bits: int, k: int, group: int, message: str) -> None:
    codes = torch.zeros(4, k, dtype=torch.int64)
    stored = QuantizedWeight(pack(codes, bits), torch.ones(4, k // group), None, bits, group)
    with pytest.raises(ValueError, match=message):
        kernel_layout(stored)
