"""Formulas of a step's cost: they agree with torch's counter and with what is known of a model."""

from __future__ import annotations

import pytest

from labllm.models.cost import GROUPS, PARTS_OF_A_MODEL, part_cost, step_cost
from labllm.models.count import flops_per_token, kv_bytes_per_token, parameters
from labllm.models.counted import counted_flops
from labllm.models.pico.shape import PICO
from labllm.models.shapes import GPT3_LIKE, SHAPES

ALL = {"pico": PICO, "GPT-3 like": GPT3_LIKE, **SHAPES}
QUICK = ["pico", "Llama-3.2-1B", "Qwen2.5-7B"]


@pytest.mark.parametrize("name", QUICK)
@pytest.mark.parametrize(("batch", "context"), [(1, 1), (3, 300)])
def test_a_decode_step_is_counted_as_the_formula_says(name: str, batch: int, context: int) -> None:
    costs = step_cost(ALL[name], batch, 1, context)
    counted = counted_flops(ALL[name], batch, 1, context)
    assert counted == {part: costs[part].flops for part in counted}
    assert set(PARTS_OF_A_MODEL) - set(counted) == {"norm"}


def test_prefill_is_counted_but_for_the_masked_half() -> None:
    costs, counted = step_cost(PICO, 2, 64, 64), counted_flops(PICO, 2, 64, 64)
    square = 4 * 2 * 64 * 64 * PICO.num_attention_heads * PICO.head_dim * PICO.num_hidden_layers
    assert counted.pop("attention") == square and costs["attention"].flops == square * 65 / 128
    assert counted == {part: costs[part].flops for part in counted}


@pytest.mark.parametrize("name", ALL)
def test_a_decoded_token_costs_two_flops_a_parameter_and_the_context(name: str) -> None:
    costs = step_cost(ALL[name], 1, 1, 1000)
    matrices = sum(c.flops for p, c in costs.items() if p != "norm")
    assert matrices == pytest.approx(flops_per_token(ALL[name], 1000), rel=1e-4)  # biases apart


@pytest.mark.parametrize("name", ALL)
def test_a_decode_step_reads_the_weights_and_the_cache(name: str) -> None:
    config, costs = ALL[name], step_cost(ALL[name], 4, 1, 1000)
    weights = parameters(config)
    stored = weights.attention + weights.mlp + config.vocab_size * config.hidden_size
    floor = 2 * stored + 4 * 1000 * kv_bytes_per_token(config)
    moved = sum(c.bytes for p, c in costs.items() if p != "norm")
    assert 0.99 * floor < moved < 1.1 * floor


def test_the_head_sees_one_token_of_each_prompt() -> None:
    prefill = step_cost(PICO, 3, 128, 128)
    assert prefill["head"] == part_cost(PICO, "head", batch=3)
    assert prefill["down"].flops == 8 * part_cost(PICO, "down", batch=3, queries=128).flops


def test_groups_cover_the_parts_once() -> None:
    assert sorted(part for parts in GROUPS.values() for part in parts) == sorted(PARTS_OF_A_MODEL)


def test_a_step_without_a_token_is_not_counted() -> None:
    with pytest.raises(ValueError, match="1 <= queries <= context"):
        counted_flops(PICO, 1, 5, 4)


def test_gpt3_has_its_parameters() -> None:
    assert parameters(GPT3_LIKE).total == pytest.approx(175e9, rel=0.01)
