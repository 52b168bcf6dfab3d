"""Tiny models of every supported family, made by transformers and saved as a user would find them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
import torch
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

SIZES = {
    "vocab_size": 97,
    "hidden_size": 48,
    "intermediate_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "initializer_range": 0.2,  # large enough that attention is far from uniform
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 5000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
FAMILIES = {
    "llama": (LlamaForCausalLM, LlamaConfig, {"head_dim": 8}),
    "llama-3": (LlamaForCausalLM, LlamaConfig, {"rope_parameters": LLAMA3, "tie_word_embeddings": True}),
    "llama-biased": (
        LlamaForCausalLM,
        LlamaConfig,
        {"attention_bias": True, "mlp_bias": True, "num_key_value_heads": 4},
    ),
    "mistral": (MistralForCausalLM, MistralConfig, {"sliding_window": 50, "num_key_value_heads": 1}),
    "mistral-unwindowed": (MistralForCausalLM, MistralConfig, {"sliding_window": None}),
    "qwen2": (Qwen2ForCausalLM, Qwen2Config, {"tie_word_embeddings": True}),
    "qwen2-windowed": (
        Qwen2ForCausalLM,
        Qwen2Config,
        {"use_sliding_window": True, "sliding_window": 20, "max_window_layers": 1},
    ),
    "qwen3": (
        Qwen3ForCausalLM,
        Qwen3Config,
        {"head_dim": 16, "rope_parameters": {"rope_theta": 1e6, "rope_type": "default"}},
    ),
}


def build(name: str) -> PreTrainedModel:
    """transformers' own model of a family, float32, every parameter random (norms and biases too)."""
    model_class, config_class, extra = FAMILIES[name]
    torch.manual_seed(0)
    model = model_class(config_class(**{**SIZES, **extra}, attn_implementation="eager")).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(0.3 * torch.randn_like(parameter))
    return model.requires_grad_(False)


@dataclass(frozen=True)
class Family:
    """transformers' model and the folders it was saved in: one file, and several shards with an index."""

    name: str
    reference: PreTrainedModel
    folder: Path
    sharded: Path

    def logits(self, ids: torch.Tensor) -> torch.Tensor:
        """transformers' logits for one sequence: ids [n] -> [n, V]."""
        with torch.inference_mode():
            return self.reference(ids[None]).logits[0]


@pytest.fixture(scope="session")
def family_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Family]:
    """name -> Family, saved on first use."""

    @cache
    def make(name: str) -> Family:
        reference, root = build(name), tmp_path_factory.mktemp(name)
        reference.save_pretrained(root / "single")
        reference.save_pretrained(root / "sharded", max_shard_size="40KB")
        return Family(name, reference, root / "single", root / "sharded")

    return make


@pytest.fixture(params=FAMILIES)
def family(request: pytest.FixtureRequest, family_of: Callable[[str], Family]) -> Family:
    """Every family in turn."""
    return family_of(request.param)


@pytest.fixture
def ids_of() -> Callable[..., list[torch.Tensor]]:
    """(*lengths) -> random ids [n] int64, one tensor a length; the same for the same lengths."""
    return prompts


def prompts(*lengths: int) -> list[torch.Tensor]:
    """Random ids [n] int64, one a length; the same for the same lengths."""
    generator = torch.Generator().manual_seed(sum(lengths))
    return [torch.randint(0, SIZES["vocab_size"], (n,), generator=generator) for n in lengths]
