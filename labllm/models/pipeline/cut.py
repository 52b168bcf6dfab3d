"""Where a model is cut into stages: every layer weighs what it costs, embedding and head included.

In decode the costs are bytes, and the head, read once for every micro-batch, weighs as much as a few layers: the last
stage gets fewer. In a long prefill they are FLOPs, and the head sees one token of each prompt: the cut is even. `by`
says what a cost counts; `memory` weighs what must lie on a device, where the embedding counts whole.

Invariant: the ranges are the model's layers in order (`parallel.stages`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from labllm.models.config import ModelConfig
from labllm.models.cost import part_cost
from labllm.models.count import parameters
from labllm.models.layer_cost import layer_cost
from labllm.parallel.stages import partition
from labllm.roofline import Cost


class PartCosts(NamedTuple):
    """What each layer costs, and what the first and the last stage pay besides: embedding and head."""

    layers: list[Cost]
    first: Cost
    last: Cost


def part_costs(
    config: ModelConfig, batch: int = 1, queries: int = 1, context: int = 1, element: float = 2
) -> PartCosts:
    """Costs of one micro-batch: `queries` new tokens for each of `batch` sequences that see `context` keys.

    `element` is bytes an element. A layer with a window sees no more keys than that, and no fewer than it brings.
    """
    seen = [context if window is None else max(queries, min(window, context)) for window in config.windows]
    layers = [layer_cost(config, batch, queries, keys, element) for keys in seen]
    embedding = Cost(0, 2 * element * batch * queries * config.hidden_size)
    return PartCosts(layers, embedding, part_cost(config, "head", batch, 1, 1, element))


def step_bytes(cost: Cost) -> float:
    """What a decode step costs: bytes."""
    return cost.bytes


def stages_of(
    config: ModelConfig,
    stages: int,
    batch: int = 1,
    queries: int = 1,
    context: int = 1,
    element: float = 2,
    by: Callable[[Cost], float] = step_bytes,
) -> tuple[range, ...]:
    """The layers of each of `stages` stages, the dearest as cheap as possible. Raises ValueError for too many."""
    costs = part_costs(config, batch, queries, context, element)
    return partition([by(cost) for cost in costs.layers], stages, by(costs.first), by(costs.last))


def stage_memory(config: ModelConfig, layers: range, tokens: int = 0, element: float = 2) -> float:
    """Bytes that the stage of `layers` holds: its weights, and keys and values of `tokens` tokens."""
    weights = parameters(config)
    final = config.hidden_size
    per_layer = (weights.attention + weights.mlp + weights.norms - final) / config.num_hidden_layers
    kv = 2 * config.num_key_value_heads * config.head_dim * tokens
    first, last = layers[0] == 0, layers[-1] == config.num_hidden_layers - 1
    embedding = weights.embedding if first or (last and config.tie_word_embeddings) else 0
    return element * (len(layers) * (per_layer + kv) + embedding + (weights.head + final if last else 0))
