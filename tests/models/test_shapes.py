"""Known shapes: the model built from each has the published number of parameters."""

from __future__ import annotations

import pytest
import torch

from labllm.models.config import ModelConfig
from labllm.models.layers import Layer, torch_linear
from labllm.models.shapes import SHAPES

PARAMETERS = {
    "Llama-2-7B": 6_738_415_616,
    "Llama-3.1-8B": 8_030_261_248,
    "Llama-3.1-70B": 70_553_706_496,
    "Llama-3.2-1B": 1_235_814_400,
    "Mistral-7B-v0.1": 7_241_732_096,
    "Qwen2.5-7B": 7_615_616_512,
    "Qwen3-0.6B": 596_049_920,
    "Qwen3-8B": 8_190_735_360,
}


def test_every_shape_has_a_published_count() -> None:
    assert SHAPES.keys() == PARAMETERS.keys()


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameter_count(name: str) -> None:
    config = SHAPES[name]
    with torch.device("meta"):
        layer = sum(p.numel() for p in Layer(config, 0, torch_linear).parameters())
    tables = (1 if config.tie_word_embeddings else 2) * config.vocab_size * config.hidden_size
    assert tables + config.hidden_size + config.num_hidden_layers * layer == PARAMETERS[name]


@pytest.mark.parametrize("name", SHAPES)
def test_shapes_survive_a_config_file(name: str) -> None:
    assert ModelConfig.from_hf(SHAPES[name].to_hf()) == SHAPES[name]
