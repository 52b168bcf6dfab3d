"""A model cut into stages: where it is cut, what a stage holds, and that its ids are those of the whole model."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import cloudpickle
import pytest
import torch

from labllm.models.config import ModelConfig
from labllm.models.count import parameters
from labllm.models.generate import generate_recompute
from labllm.models.llama import Llama
from labllm.models.load import from_config, load
from labllm.models.operations import EAGER
from labllm.models.pico import WEIGHTS, pico
from labllm.models.pico.shape import PICO
from labllm.models.pipeline.cut import part_costs, stage_memory, stages_of
from labllm.models.pipeline.generate import generate_pipelined
from labllm.models.rope import RopeConfig
from labllm.models.shapes import SHAPES
from labllm.parallel import Workers, rank, world
from labllm.parallel.mesh import mesh
from labllm.parallel.ring import Ring
from labllm.parallel.schedules import SCHEDULES
from labllm.parallel.stages import balance, stage_costs
from labllm.parallel.tensor import TensorParallel
from labllm.roofline import Cost

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # the ranks cannot import this file
LLAMA = ModelConfig("llama", 97, 32, 48, 5, 4, 2, 8, 64, RopeConfig(), (None,) * 5, tie_word_embeddings=True)
QWEN3 = replace(LLAMA, model_type="qwen3", qk_norm=True, tie_word_embeddings=False, num_key_value_heads=1)
PROMPTS = [[5, 3, 60], [7], [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17], [9, 9], [96]]
NEW = 6


def made(config: ModelConfig, layers: range | None = None, **parts: Any) -> Llama:
    """The model, or a stage of it, with weights so large that ids do not merely repeat."""
    model = from_config(config, layers=layers, seed=3, **parts)
    for parameter in model.parameters():
        if parameter.dim() > 1:
            parameter.mul_(8)
    return model


def pipelined(config: ModelConfig, schedule: str, micro_batches: int, fused: bool) -> list[list[int]] | None:
    model = made(config, stages_of(config, world())[rank()], operations=EAGER if fused else None)
    return generate_pipelined(model, Ring.of(mesh(world(), 1)), PROMPTS, NEW, micro_batches, SCHEDULES[schedule])


@pytest.mark.parametrize("config", [LLAMA, QWEN3], ids=["llama", "qwen3"])
@pytest.mark.parametrize(("schedule", "micro_batches"), [("fill-drain", 3), ("continuous", 5), ("continuous", 1)])
def test_two_stages_write_what_the_whole_model_writes(
    workers: Workers, config: ModelConfig, schedule: str, micro_batches: int
) -> None:
    first, last = workers.call(pipelined, config, schedule, micro_batches, micro_batches == 3)
    assert first is None and last == generate_recompute(made(config), PROMPTS, NEW)


def two_by_two(config: ModelConfig) -> list[list[int]] | None:
    grid = mesh(2, 2)
    ring, shared = Ring.of(grid), TensorParallel.of(grid.get_group("tp"))
    model = made(config, stages_of(config, 2)[ring.stage], tensor_parallel=shared)
    return generate_pipelined(model, ring, PROMPTS, NEW, 3)


@pytest.mark.parametrize("config", [LLAMA, QWEN3], ids=["llama", "qwen3"])
def test_two_stages_of_two_ranks_write_what_the_whole_model_writes(four_workers: Workers, config: ModelConfig) -> None:
    expected = generate_recompute(made(config), PROMPTS, NEW)
    assert four_workers.call(two_by_two, config) == [None, None, expected, expected]


def loaded(pp: int, tp: int) -> list[list[int]] | None:
    grid = mesh(pp, tp)
    ring, shared = Ring.of(grid), TensorParallel.of(grid.get_group("tp")) if tp > 1 else None
    model = load(WEIGHTS, layers=stages_of(PICO, pp)[ring.stage], operations=EAGER, tensor_parallel=shared)
    return generate_pipelined(model, ring, PROMPTS, NEW, 2)


def test_pico_reads_its_stages_from_the_checkpoint(workers: Workers, four_workers: Workers) -> None:
    expected = generate_recompute(pico("cpu"), PROMPTS, NEW)
    assert workers.call(loaded, 2, 1) == [None, expected]
    assert four_workers.call(loaded, 2, 2) == [None, None, expected, expected]


def test_stages_that_follow_one_another_are_the_model() -> None:
    whole = made(LLAMA)
    cut = stages_of(LLAMA, 3)
    assert generate_pipelined(whole, Ring.alone(), PROMPTS, NEW, 2) == generate_recompute(whole, PROMPTS, NEW)
    stages = [made(LLAMA, layers) for layers in cut]
    assert [(stage.first, stage.last) for stage in stages] == [(True, False), (False, False), (False, True)]
    for stage in stages:
        assert all(torch.equal(tensor, whole.state_dict()[name]) for name, tensor in stage.state_dict().items())


def test_the_head_takes_layers_from_the_last_stage_in_decode_and_none_in_prefill() -> None:
    shape = SHAPES["Llama-3.1-8B"]
    assert [len(layers) for layers in stages_of(shape, 2, batch=8, context=1024)] == [17, 15]
    assert [len(layers) for layers in stages_of(shape, 2, 1, 2048, 2048, by=lambda cost: cost.flops)] == [16, 16]
    costs = part_costs(shape, 8, 1, 1024)
    cut = stages_of(shape, 2, 8, 1, 1024)
    paid = stage_costs([c.bytes for c in costs.layers], cut, costs.first.bytes, costs.last.bytes)
    assert balance(paid) > 0.98


def test_a_window_makes_a_layer_cheaper() -> None:
    config = replace(PICO, windows=(64, None) * 4)
    costs = part_costs(config, 4, 1, 1024).layers
    assert costs[0].bytes < costs[1].bytes and costs[0] == costs[2]
    assert part_costs(config, 1, 1024, 1024).layers[0] == part_costs(config, 1, 1024, 1024).layers[1]


@pytest.mark.parametrize("name", ["Llama-3.1-8B", "Qwen3-0.6B"])
def test_what_the_stages_hold_is_what_the_model_holds(name: str) -> None:
    shape = SHAPES[name]
    held = sum(stage_memory(shape, layers) for layers in stages_of(shape, 4))
    twice = shape.tie_word_embeddings * shape.vocab_size * shape.hidden_size  # first and last stage have the table
    assert held == pytest.approx(2 * (parameters(shape).total + twice))
    assert stage_memory(shape, range(1), 10) - stage_memory(shape, range(1)) == 10 * 2 * 8 * 128 * 2


def test_more_stages_than_layers_and_more_micro_batches_than_prompts_are_refused() -> None:
    with pytest.raises(ValueError, match="1 to 5 stages; got 6"):
        stages_of(LLAMA, 6)
    with pytest.raises(ValueError, match="5 prompts make 1 to 5 micro-batches; got 6"):
        generate_pipelined(from_config(LLAMA), Ring.alone(), PROMPTS, NEW, 6)
    assert stages_of(LLAMA, 2, by=lambda cost: Cost().bytes)[0] == range(1)
