"""The packed form: an inverse bit by bit, words that match the published layout, and records that fit together."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from labllm.quantization.packed import BITS, QuantizedWeight, pack, unpack
from labllm.quantization.rtn import round_to_nearest


def every_bit(words: torch.Tensor) -> list[int]:
    """The bits of int32 words, lowest first, one word after another."""
    return [(int(word) >> bit) & 1 for word in words for bit in range(32)]


@pytest.mark.parametrize("bits", BITS)
def test_a_row_is_a_little_endian_stream_of_bits(bits: int):
    codes = torch.randint(0, 2**bits, (64,), generator=torch.Generator().manual_seed(bits))
    stream = [(int(code) >> bit) & 1 for code in codes for bit in range(bits)]
    assert every_bit(pack(codes, bits)) == stream


def test_input_j_of_a_word_is_nibble_j():
    assert pack(torch.arange(8), 4).tolist() == [0x76543210]
    assert pack(torch.arange(15, 7, -1), 4).tolist() == [0x89ABCDEF - 2**32]


@settings(max_examples=60, deadline=None)
@given(bits=st.sampled_from(BITS), rows=st.integers(0, 3), periods=st.integers(0, 4), data=st.data())
def test_unpack_gives_back_what_was_packed(bits: int, rows: int, periods: int, data: st.DataObject):
    width = 32 * periods
    values = data.draw(st.lists(st.integers(0, 2**bits - 1), min_size=rows * width, max_size=rows * width))
    codes = torch.tensor(values, dtype=torch.uint8).view(rows, width)
    words = pack(codes, bits)
    assert words.dtype == torch.int32 and words.shape == (rows, width * bits // 32)
    assert torch.equal(unpack(words, bits), codes)


@pytest.mark.parametrize("bits", BITS)
def test_any_words_survive_unpacking_and_packing(bits: int):
    words = torch.randint(-(2**31), 2**31, (3, 6), generator=torch.Generator().manual_seed(0)).to(torch.int32)
    assert torch.equal(pack(unpack(words, bits), bits), words)


@pytest.mark.parametrize(
    ("codes", "bits", "sentence"),
    [
        (torch.zeros(8, dtype=torch.uint8), 5, "5 bits are not supported; supported are 2, 3, 4, 8"),
        (torch.full((8,), 16), 4, "lie in 0 .. 15; got 16 to 16"),
        (torch.full((8,), -1), 4, "got -1 to -1"),
        (torch.zeros(12, dtype=torch.uint8), 4, "packed 8 at a time; got 12"),
        (torch.zeros(8, dtype=torch.uint8), 3, "packed 32 at a time"),
    ],
)
def test_codes_that_cannot_be_packed(codes: torch.Tensor, bits: int, sentence: str):
    with pytest.raises(ValueError, match=sentence):
        pack(codes, bits)


def test_words_of_another_kind_are_refused():
    with pytest.raises(ValueError, match=r"int32 words, 3 at a time; got torch\.int32 and 4"):
        unpack(torch.zeros(4, dtype=torch.int32), 3)
    with pytest.raises(ValueError, match=r"got torch\.int64"):
        unpack(torch.zeros(3, dtype=torch.int64), 4)


def by_hand(weight: QuantizedWeight) -> torch.Tensor:
    """The formula of the module, an element at a time, in float64."""
    n, k = weight.shape
    codes, out = weight.codes(), torch.empty(n, k, dtype=torch.float64)
    for row in range(n):
        for column in range(k):
            at = row % weight.scales.shape[0], column // weight.group_size
            zero = 2 ** (weight.bits - 1) if weight.zeros is None else int(weight.zeros[at])
            feature = column if weight.order is None else int(weight.order[column])
            out[row, feature] = (int(codes[row, column]) - zero) * weight.scales[at].double()
    return out


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize(("bits", "granularity"), [(8, 32), (4, 32), (3, "channel"), (4, "tensor"), (2, 64)])
def test_dequantize_is_the_formula(bits: int, granularity: int | str, symmetric: bool, ordered: bool):
    generator = torch.Generator().manual_seed(bits)
    weight = round_to_nearest(torch.randn(5, 64, generator=generator), bits, granularity, symmetric)
    if ordered:
        order = torch.randperm(64, generator=generator).to(torch.int32)
        weight = QuantizedWeight(weight.qweight, weight.scales, weight.zeros, bits, weight.group_size, order)
    assert torch.equal(weight.dequantize(torch.float64), by_hand(weight))
    assert torch.equal(weight.dequantize(torch.float16), by_hand(weight).half())


def test_bits_a_weight_count_scales_and_zero_points():
    weight = torch.randn(16, 256)
    assert round_to_nearest(weight, 4, 128, symmetric=True).bits_per_weight == 4 + 16 / 128
    assert round_to_nearest(weight, 4, 64).bits_per_weight == 4 + (16 + 8) / 64
    assert round_to_nearest(weight, 3, "channel", symmetric=True).bits_per_weight == 3 + 16 / 256
    assert round_to_nearest(weight, 8, "tensor", symmetric=True).bits_per_weight == 8 + 16 / (16 * 256)


@pytest.mark.parametrize("symmetric", [False, True])
def test_rows_split_into_weights_of_their_own(symmetric: bool):
    weight = round_to_nearest(torch.randn(6, 64), 4, 32, symmetric)
    pieces = weight.split([1, 3, 2])
    assert [piece.shape for piece in pieces] == [(1, 64), (3, 64), (2, 64)]
    assert torch.equal(torch.cat([piece.dequantize() for piece in pieces]), weight.dequantize())
    with pytest.raises(ValueError, match="cannot be split"):
        round_to_nearest(torch.randn(6, 64), 4, "tensor").split([3, 3])


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"qweight": torch.zeros(4, 8)}, "qweight must be int32"),
        ({"group_size": 48}, "must divide the 64 inputs; got 48"),
        ({"scales": torch.ones(3, 2)}, r"must be \[4, 2\]"),
        ({"scales": torch.ones(4, 2, dtype=torch.int32)}, "floating point"),
        ({"zeros": torch.zeros(4, 1, dtype=torch.uint8)}, r"zeros must be uint8 \[4, 2\]"),
        ({"zeros": torch.zeros(4, 2)}, "zeros must be uint8"),
        ({"order": torch.arange(32, dtype=torch.int32)}, r"order must be int32 \[64\]"),
        ({"bits": 6}, "6 bits are not supported"),
    ],
)
def test_parts_that_do_not_fit_are_named(change: dict, sentence: str):
    parts = {
        "qweight": torch.zeros(4, 8, dtype=torch.int32),
        "scales": torch.ones(4, 2),
        "zeros": None,
        "bits": 4,
        "group_size": 32,
    }
    assert QuantizedWeight(**parts).shape == (4, 64)
    with pytest.raises(ValueError, match=sentence):
        QuantizedWeight(**(parts | change))
