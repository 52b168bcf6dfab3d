"""Bytes and FLOPs of one decoder layer, by formula: what must move, and what each way of computing it moves.

What must move: weights once, keys and values of every sequence once, the hidden state in and out. What the ways differ
in are passes over activations, written by one launch and read by the next (`passes`). So fusion's share of the bytes is
small in decode, where weights are nearly all of them: there it saves launches, and only a prefill saves bytes that
show.
"""

from __future__ import annotations

from collections.abc import Collection

from labllm.models.config import ModelConfig
from labllm.models.cost import linear_sizes, part_cost
from labllm.roofline import Cost

FUSIONS = ("packed", "add and norm", "SwiGLU", "RoPE and write", "into the products")
PRODUCTS = ("qkv", "output", "gate and up", "down")


def layer_cost(config: ModelConfig, batch: int, queries: int, context: int, element: float) -> Cost:
    """Compulsory cost of one layer: `queries` new tokens for each of `batch` sequences that see `context` keys."""
    return _with_activations(config, 2 * config.hidden_size, batch, queries, context, element)


def layer_moved(
    config: ModelConfig, fusions: Collection[str], batch: int, queries: int, context: int, element: float
) -> Cost:
    """Cost of a layer that applies `fusions`, some of FUSIONS. Raises ValueError for an unknown one."""
    if unknown := set(fusions) - set(FUSIONS):
        raise ValueError(f"there is no fusion {min(unknown)!r}; there are {', '.join(FUSIONS)}")
    return _with_activations(config, sum(passes(config, fusions).values()), batch, queries, context, element)


def passes(config: ModelConfig, fusions: Collection[str]) -> dict[str, int]:
    """Elements of activations read and written for one token, by part of the layer; keys and values in the cache not.

    A sum moves 3 rows and a norm 2, both in one launch 4; a gate 5 and in one launch 3. Unfused RoPE moves 9 (products,
    difference and sum, concatenation), the write of keys and values twice what it stores. Inside the products a gate
    moves nothing, and of norms and sums the residual is left, read by two products.
    """
    h, inner = config.hidden_size, config.intermediate_size
    q, kv = (n * config.head_dim for n in (config.num_attention_heads, config.num_key_value_heads))
    packed, inside = "packed" in fusions, "into the products" in fusions
    return {
        "norms and sums": 2 * h if inside else 8 * h if "add and norm" in fusions else 10 * h,
        "qkv": (h if packed else 3 * h) + q + 2 * kv,
        "RoPE and write": 2 * q + 2 * kv if "RoPE and write" in fusions else 9 * (q + kv) + 2 * kv,
        "attention": 2 * q,
        "output": q + h,
        "gate and up": (h if packed else 2 * h) + (inner if inside else 2 * inner),
        "gate": 0 if inside else 3 * inner if "SwiGLU" in fusions else 5 * inner,
        "down": inner + h,
    }


def _with_activations(
    config: ModelConfig, elements: int, batch: int, queries: int, context: int, element: float
) -> Cost:
    """Weights, keys and values, and `elements` of activations a token."""
    weights = sum(inputs * outputs for inputs, outputs in (linear_sizes(config, part) for part in PRODUCTS))
    kv = 2 * batch * context * config.num_key_value_heads * config.head_dim
    attention = part_cost(config, "attention", batch, queries, context, element).flops
    moved = weights + 2 * config.hidden_size + kv + batch * queries * elements
    return Cost(2.0 * batch * queries * weights + attention, element * moved)
