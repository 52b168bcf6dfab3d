"""FLOPs and bytes of every part of one step, by formula, from a model's shape alone.

A step brings `queries` new tokens to each of `batch` sequences that see `context` keys: decode has one query, prefill
as many as keys. Linear parts see only how many tokens there are; attention alone sees the context. A norm counts four
FLOPs an element. Left out: the embedding's one row a token, rotation, activation and residual sums, which move
activations only.

Invariant: matrix products agree with torch's counter (`counted`), but for the half of prefill's attention that a
causal mask hides, which is not counted here.
"""

from __future__ import annotations

from labllm.models.config import ModelConfig
from labllm.roofline import Cost, attention, linear

PARTS_OF_A_MODEL = ("norm", "qkv", "attention", "output", "gate and up", "down", "head")
GROUPS = {
    "GEMMs": ("qkv", "output", "gate and up", "down", "head"),
    "attention": ("attention",),
    "norms": ("norm",),
}


def linear_sizes(config: ModelConfig, part: str) -> tuple[int, int]:
    """(inputs, outputs) of a linear part. Raises KeyError for a part that is none."""
    q, kv = config.num_attention_heads * config.head_dim, config.num_key_value_heads * config.head_dim
    return {
        "qkv": (config.hidden_size, q + 2 * kv),
        "output": (q, config.hidden_size),
        "gate and up": (config.hidden_size, 2 * config.intermediate_size),
        "down": (config.intermediate_size, config.hidden_size),
        "head": (config.hidden_size, config.vocab_size),
    }[part]


def times_in_model(config: ModelConfig, part: str) -> int:
    """How often one step runs the part: the head once, a norm twice a layer, the others once a layer."""
    return {"head": 1, "norm": 2 * config.num_hidden_layers}.get(part, config.num_hidden_layers)


def part_cost(
    config: ModelConfig, part: str, batch: int = 1, queries: int = 1, context: int = 1, element: float = 2
) -> Cost:
    """Compulsory FLOPs and bytes of one run of the part over all its tokens; `element` is bytes an element."""
    tokens = batch * queries
    if part == "attention":
        heads = config.num_attention_heads, config.num_key_value_heads, config.head_dim
        return attention(batch, queries, context, *heads, element)
    if part == "norm":
        return Cost(4.0 * tokens * config.hidden_size, 2 * element * tokens * config.hidden_size)
    return linear(tokens, *linear_sizes(config, part), element)


def step_cost(
    config: ModelConfig, batch: int = 1, queries: int = 1, context: int = 1, element: float = 2
) -> dict[str, Cost]:
    """Cost by part of a whole step, all layers together; the head sees each sequence's last token only."""
    costs = {}
    for part in PARTS_OF_A_MODEL:
        seen = 1 if part == "head" else queries
        costs[part] = times_in_model(config, part) * part_cost(config, part, batch, seen, context, element)
    return costs
