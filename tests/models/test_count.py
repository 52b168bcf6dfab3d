"""Formulas of weights and work against the model itself and torch's own FLOP counter."""

from __future__ import annotations

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from labllm.cache.step import Step
from labllm.models.count import flops_per_token, kv_bytes_per_token, parameters, pass_cost
from labllm.models.generate import new_cache
from labllm.models.llama import Llama
from labllm.models.pico.shape import PICO
from labllm.models.shapes import SHAPES


@pytest.mark.parametrize("name", SHAPES)
def test_parameters_are_those_of_the_model(name: str) -> None:
    with torch.device("meta"):
        model = Llama(SHAPES[name])
    assert parameters(SHAPES[name]).total == sum(p.numel() for p in model.parameters())


def test_flops_a_token_are_what_the_counter_counts() -> None:
    model = Llama(PICO)
    with FlopCounterMode(display=False) as counter, torch.inference_mode():
        model(torch.tensor([1]), Step.uncached([1], "cpu"))
    linears = counter.get_total_flops() - sum(
        n for op, n in counter.get_flop_counts()["Global"].items() if "attention" in str(op)
    )
    assert linears == flops_per_token(PICO, 0)


def test_a_token_of_context_takes_what_the_cache_takes() -> None:
    cache = new_cache(Llama(PICO), num_seqs=2, max_len=100)
    spare_slot = cache.pool.nbytes // (cache.num_slots + 1)
    assert kv_bytes_per_token(PICO, torch.float32) == spare_slot


def test_two_flops_a_parameter_is_close_for_large_models() -> None:
    config = SHAPES["Llama-3.1-70B"]
    weights = parameters(config)
    assert flops_per_token(config) == pytest.approx(2 * weights.total, rel=0.02)
    assert flops_per_token(config, 131072) > 2 * flops_per_token(config)


def test_a_pass_is_what_the_counter_counts_but_for_attention() -> None:
    model, new = Llama(PICO), 7
    with FlopCounterMode(display=False) as counter, torch.inference_mode():
        model(torch.arange(2 * new), Step.uncached([new, new], "cpu"))
    counted = counter.get_total_flops() - sum(
        n for op, n in counter.get_flop_counts()["Global"].items() if "attention" in str(op)
    )
    pairs = new * (new + 1) // 2
    attention = 4 * PICO.num_attention_heads * PICO.head_dim * PICO.num_hidden_layers * pairs
    assert pass_cost(PICO, 0, new, batch=2).flops == counted + 2 * attention


def test_a_decode_pass_reads_the_weights_once_and_every_cache() -> None:
    weights, token = 4 * parameters(PICO).total, kv_bytes_per_token(PICO, torch.float32)
    assert pass_cost(PICO, 99, 1, batch=3).bytes == weights + 3 * 100 * token
    assert pass_cost(PICO, 99, 1).flops == flops_per_token(PICO, 100)
