"""The floor of a step: the sum of its parts' floors, and the limit that most of it is spent on."""

from __future__ import annotations

import pytest

from labllm.bench import Roof
from labllm.models.bound import arithmetic_of, step_bound
from labllm.models.count import parameters
from labllm.models.pico.shape import PICO
from labllm.models.shapes import SHAPES

LLAMA = SHAPES["Llama-3.1-8B"]
ROOF = Roof("box", "datasheet", 4.8e12, {"float16": 989e12, "float32": 67e12})


def test_decode_waits_for_memory_and_prefill_for_arithmetic() -> None:
    decode = step_bound(LLAMA, ROOF, "float16", 1, 1, 512)
    assert decode.limit == "memory" and decode.waiting == 1
    assert decode.floor() == pytest.approx(15.08e9 / 4.8e12, rel=0.02)  # linears, head and cache, without the embedding
    prefill = step_bound(LLAMA, ROOF, "float16", 1, 8192, 8192)
    assert prefill.limit == "compute" and prefill.waiting < 0.1


def test_a_batch_shares_the_weights_until_the_ridge() -> None:
    rates = [step_bound(LLAMA, ROOF, "float16", b, 1, 1).tokens_per_second for b in (1, 64, 1024)]
    assert rates[1] > 60 * rates[0] and rates[2] < 8 * rates[1]


def test_the_floor_is_the_sum_of_the_parts() -> None:
    step = step_bound(PICO, ROOF, "float32", 4, 1, 100)
    assert step.floor() == pytest.approx(sum(step.floor(p) for p in step.costs))
    assert step.floor() >= step.cost().flops / step.peak and step.floor() >= step.cost().bytes / step.bandwidth
    assert step.cost("qkv", "down") == step.costs["qkv"] + step.costs["down"]


def test_memory_holds_weights_and_cache() -> None:
    step = step_bound(LLAMA, ROOF, "float16", 16, 1, 1000)
    assert step.memory == 2 * parameters(LLAMA).total + 16 * 1000 * 131072


def test_arithmetic_runs_in_the_next_wider_dtype() -> None:
    assert [arithmetic_of(ROOF, t) for t in ("float32", "float16", "bfloat16", "float8", "int4")] == [
        "float32", "float16", "float16", "float16", "float16",
    ]  # fmt: skip
    eight = step_bound(LLAMA, ROOF, "float8", 1, 1, 512)
    assert eight.peak == 989e12 and eight.floor() == pytest.approx(step_bound(LLAMA, ROOF).floor() / 2, rel=0.05)


def test_an_unknown_rate_is_named() -> None:
    with pytest.raises(ValueError, match="no rate for float64 or wider; it knows float16, float32"):
        step_bound(PICO, ROOF, "float64")
