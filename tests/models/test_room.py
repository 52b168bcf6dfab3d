"""Room by formula: sequences that fit do fit, and one more does not."""

from __future__ import annotations

import pytest
import torch

from labllm.models.room import Room
from labllm.models.shapes import SHAPES

GIB = 2**30


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("context", [1, 1000, 32768])
def test_one_more_would_not_fit(name: str, context: int):
    room = Room(SHAPES[name], context, 80 * GIB)
    fits = sum(room.bar(room.num_seqs).values()) <= room.usable
    assert fits or room.num_seqs == 0
    assert sum(room.bar(room.num_seqs + 1).values()) > room.usable


def test_llama_by_hand():
    room = Room(SHAPES["Llama-3.1-8B"], 8192, 80 * GIB)
    assert room.per_sequence == 2 * 32 * 8 * 128 * 2 * 8192 == GIB
    assert room.weights == 2 * 8_030_261_248
    assert room.num_seqs == int(72 - room.weights / GIB) == 57
    assert room.verdict(32) == (
        "A sequence of 8,192 tokens takes 1.07 GB of cache; beside 16.1 GB of weights there is room for 57: "
        "32 fit, and 26.9 GB stay free."
    )
    assert "57: 1 fits, and" in room.verdict(1)
    assert room.verdict(64).endswith("there is room for 57: 64 do not fit, by 7.47 GB.")
    assert Room(SHAPES["Llama-2-7B"], 8192, 80 * GIB).per_sequence == 4 * GIB


def test_an_eight_bit_cache_takes_half():
    full, half = (Room(SHAPES["Qwen3-8B"], 512, GIB, kv_dtype=d) for d in (torch.bfloat16, torch.float8_e4m3fn))
    assert half.per_sequence * 2 == full.per_sequence


def test_weights_that_do_not_fit_leave_no_room():
    room = Room(SHAPES["Llama-3.1-70B"], 1, 80 * GIB)
    assert room.num_seqs == 0
    assert room.verdict(1).endswith("and the weights alone, 141 GB, do not fit.")


@pytest.mark.parametrize("wrong", [(0, GIB), (1, 0)])
def test_refuses(wrong: tuple[int, int]):
    with pytest.raises(ValueError, match="Room needs"):
        Room(SHAPES["Qwen3-8B"], *wrong)
