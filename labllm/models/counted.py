"""FLOPs of one step as torch's counter sees them, to set beside the formulas of `cost`.

The model is built on the meta device, where tensors have shapes and no numbers: the counter needs nothing else, so a
model of any size is counted in a moment. Layers of one shape are counted once and multiplied.

Invariant: what is counted is the model that this package runs. It loses where work is no matrix product (norms,
softmax, rotations count zero) and where work is skipped: the counter takes attention's whole square, also the half
that a causal mask hides.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from labllm.attention.runs import attend_run, plan
from labllm.cache.step import Step
from labllm.models.config import ModelConfig
from labllm.models.llama import Llama

PROJECTIONS = {
    "qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "output": ("self_attn.o_proj",),
    "gate and up": ("mlp.gate_proj", "mlp.up_proj"),
    "down": ("mlp.down_proj",),
}


def counted_flops(config: ModelConfig, batch: int = 1, queries: int = 1, context: int = 1) -> dict[str, int]:
    """FLOPs by part of one step: `batch` sequences bring `queries` new tokens each and see `context` keys.

    Parts are those of `labllm.models.cost`, all layers together, norms apart; the new tokens are among the keys.
    Raises ValueError where queries exceed context.
    """
    if not 1 <= queries <= context:
        raise ValueError(f"a step needs 1 <= queries <= context, got {queries} queries and context {context}")
    step = Step.contiguous([context - queries] * batch, [queries] * batch, context, device="meta")
    total: Counter[str] = Counter()
    for window, layers in Counter(config.windows).items():
        parts = _count(replace(config, num_hidden_layers=1, windows=(window,)), step)
        head = parts.pop("head")
        total.update({part: layers * flops for part, flops in parts.items()})
    return dict(total) | {"head": head}


def _count(config: ModelConfig, step: Step) -> dict[str, int]:
    """FLOPs by part of a model of one layer."""
    with torch.device("meta"):
        model = Llama(config, _attend).to(torch.bfloat16)
        model.rope = model.rope.to("meta")
        ids = torch.zeros(step.num_tokens, dtype=torch.int64)
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            model(ids, step)
    modules = {name: sum(operators.values()) for name, operators in counter.get_flop_counts().items()}
    layer = "Llama.model.layers.0"
    parts = {part: sum(modules[f"{layer}.{name}"] for name in names) for part, names in PROJECTIONS.items()}
    return parts | {
        "attention": modules[layer] - sum(parts.values()),
        "head": counter.get_total_flops() - modules[layer],
    }


def _attend(q: Tensor, k: Tensor, v: Tensor, layer: int, step: Step, window: int | None = None) -> Tensor:
    """Attention over keys that need no cache, because a shape is all there is of them."""
    pieces = []
    for run in plan(step, window):
        keys = k.new_empty(run.sequences.stop - run.sequences.start, run.end_key - run.first_key, *k.shape[1:])
        pieces.append(attend_run(run, q[run.tokens], keys, keys))
    return torch.cat(pieces)
