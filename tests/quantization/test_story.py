"""GPTQ step by step ends where GPTQ ends, and its course says what compensation is worth."""

from __future__ import annotations

import pytest
import torch

from labllm.quantization.gptq import gptq
from labllm.quantization.inputs import InputStatistics
from labllm.quantization.nibbles import show_word
from labllm.quantization.packed import QuantizedWeight
from labllm.quantization.rtn import round_to_nearest
from labllm.quantization.story import course


def drawn() -> tuple[torch.Tensor, InputStatistics]:
    generator = torch.Generator().manual_seed(0)
    inputs = InputStatistics(64)
    inputs.add(torch.randn(300, 64, generator=generator) @ torch.randn(64, 64, generator=generator))
    return torch.randn(8, 64, generator=generator), inputs


def test_the_last_moment_is_gptq():
    weight, inputs = drawn()
    last = list(course(weight, inputs, 4, 32, compensate=True))[-1]
    whole, _ = gptq(weight, inputs, 4, 32, scale_dtype=torch.float32)
    assert torch.isclose(last.weight, whole.dequantize(), atol=1e-4).double().mean() > 0.99
    assert abs(last.error - inputs.error(weight, last.weight)) < 1e-3


def test_without_compensation_it_is_rounding_and_the_error_only_grows_by_chance():
    weight, inputs = drawn()
    moments = list(course(weight, inputs, 4, 32, compensate=False, every=8))
    assert [m.done for m in moments] == [0, 8, 16, 24, 32, 40, 48, 56, 64]
    assert torch.allclose(moments[-1].weight, round_to_nearest(weight, 4, 32, scale_dtype=torch.float32).dequantize())
    rounded = moments[3].order[:24]
    assert torch.equal(moments[3].weight[:, moments[3].order[24:]], weight[:, moments[3].order[24:]])
    assert not torch.equal(moments[3].weight[:, rounded], weight[:, rounded])


def test_compensation_keeps_the_output_near_all_along():
    weight, inputs = drawn()
    runs = [[m.error for m in course(weight, inputs, 3, 32, on, every=8)] for on in (False, True)]
    assert runs[0][0] == runs[1][0] == 0
    assert all(better < plain for plain, better in zip(runs[0][1:], runs[1][1:], strict=True))


def test_a_word_is_shown_as_it_lies():
    weight = round_to_nearest(torch.randn(4, 64, generator=torch.Generator().manual_seed(0)), 4, 32)
    text, codes = show_word(weight, 1, 2), weight.codes()[1, 16:24].tolist()
    assert f"0x{sum(code << 4 * i for i, code in enumerate(codes)):08x}" in text
    for index, code in enumerate(codes):
        value = float(weight.dequantize()[1, 16 + index])
        assert f"input {16 + index:<5} ({code:>3} -" in text and f"= {value:+.5f}" in text


def test_a_word_names_the_input_features_of_an_act_order():
    plain = round_to_nearest(torch.randn(2, 64), 8, 32, symmetric=True)
    order = torch.arange(63, -1, -1, dtype=torch.int32)
    text = show_word(QuantizedWeight(plain.qweight, plain.scales, None, 8, 32, order), 0, 0)
    assert "input 63" in text and "bits 24 .. 31: input 60" in text


def test_words_that_cannot_be_shown_are_named():
    weight = round_to_nearest(torch.randn(2, 64), 4, 32)
    with pytest.raises(ValueError, match=r"rows 0 \.\. 1 and words 0 \.\. 7; got row 2, word 0"):
        show_word(weight, 2, 0)
    with pytest.raises(ValueError, match="cross the borders of words"):
        show_word(round_to_nearest(torch.randn(2, 64), 3, 32))
