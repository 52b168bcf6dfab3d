"""Three numbers that most planning needs: weights in memory, FLOPs a token, bytes of KV cache a token of context.

All follow from a model's shape alone. A decoded token passes every weight of the linear layers once, two FLOPs each,
and looks at every key of its context; its embedding is one row looked up. Kaplan et al. 2020, arXiv:2001.08361,
section 2.1."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from labllm.cache.contiguous import kv_bytes
from labllm.models.config import ModelConfig
from labllm.roofline import Cost, causal_pairs


@dataclass(frozen=True)
class Weights:
    """Parameters of one model by part: `attention`, `mlp` and `norms` are of all layers together."""

    embedding: int
    attention: int
    mlp: int
    norms: int
    head: int

    @property
    def total(self) -> int:
        """All parameters that lie in memory."""
        return self.embedding + self.attention + self.mlp + self.norms + self.head


def parameters(config: ModelConfig) -> Weights:
    """Parameters of a model by part; a tied head has none of its own."""
    h, inner, d = config.hidden_size, config.intermediate_size, config.head_dim
    q, kv = config.num_attention_heads * d, config.num_key_value_heads * d
    biases = (q + 2 * kv if config.qkv_bias else 0) + (h if config.o_bias else 0)
    attention = h * (q + 2 * kv) + q * h + biases
    mlp = 3 * h * inner + (2 * inner + h if config.mlp_bias else 0)
    layers = config.num_hidden_layers
    return Weights(
        embedding=config.vocab_size * h,
        attention=layers * attention,
        mlp=layers * mlp,
        norms=layers * (2 * h + (2 * d if config.qk_norm else 0)) + h,
        head=0 if config.tie_word_embeddings else config.vocab_size * h,
    )


def flops_per_token(config: ModelConfig, context: int = 0) -> float:
    """FLOPs of one token: 2 a parameter of the linear layers and the head, and 4 Hq D a layer and visible key."""
    weights = parameters(config)
    linears = weights.attention + weights.mlp + config.vocab_size * config.hidden_size
    return 2.0 * linears + 4.0 * config.num_attention_heads * config.head_dim * config.num_hidden_layers * context


def kv_bytes_per_token(config: ModelConfig, dtype: torch.dtype = torch.bfloat16) -> int:
    """Bytes of KV cache that one token of context takes: 2 layers Hkv D bytes an element."""
    return kv_bytes(config.num_hidden_layers, config.num_key_value_heads, config.head_dim, 1, dtype)


def pass_cost(config: ModelConfig, cached: int, new: int, batch: int = 1, dtype: torch.dtype = torch.float32) -> Cost:
    """One pass over `new` tokens of each of `batch` sequences, each behind `cached` ones.

    The weights are read once, the keys and values of every sequence once, and the head scores one token a sequence.
    """
    weights = parameters(config)
    keys = 4.0 * config.num_attention_heads * config.head_dim * config.num_hidden_layers
    flops = 2.0 * new * (weights.attention + weights.mlp) + 2.0 * config.vocab_size * config.hidden_size
    flops += keys * causal_pairs(new, cached + new)
    cache = (cached + new) * kv_bytes_per_token(config, dtype)
    return Cost(batch * flops, dtype.itemsize * weights.total + batch * cache)
