"""What one rank holds of a model and its KV cache, over the number of ranks: where splitting saves memory.

Weights fall as 1 / n, up to the norms, which every rank has whole. The cache falls with the KV heads of a rank: once
there are more ranks than KV heads, each of them lies on several ranks and the cache does not shrink any more.
By formula; nothing is loaded. It loses what a formula cannot know: activations, graphs and what an allocator keeps.
"""

from __future__ import annotations

import torch

from labllm.devices import KNOWN
from labllm.models.config import ModelConfig
from labllm.models.count import kv_bytes_per_token, parameters
from labllm.models.shapes import SHAPES
from labllm.models.tensor_parallel.shards import local_config
from labllm.parallel.split import split_vocabulary
from labllm.ui import Panel, View, choice, memory, slider
from labllm.ui.style import engineering

GPUS = {spec.name: spec for spec in KNOWN}
RANKS = (1, 2, 4, 8, 16, 32)
USED = 0.9  # of a GPU's memory
LEFT = "A tenth is left to activations."
CACHE = "KV cache"


def held(config: ModelConfig, ranks: int, tokens: int, dtype: torch.dtype = torch.bfloat16) -> dict[str, float]:
    """Bytes that rank 0 of `ranks` holds, by part, with a cache for `tokens` tokens.

    Raises ValueError where the model cannot be shared among so many.
    """
    own = local_config(config, 0, ranks)
    weights, width = parameters(own), dtype.itemsize
    tables = 1 if config.tie_word_embeddings else 2
    rows = split_vocabulary(config.vocab_size, 0, ranks).rows
    return {
        "embedding and head": float(tables * rows * config.hidden_size * width),
        "attention": float(weights.attention * width),
        "MLP": float(weights.mlp * width),
        "norms": float(weights.norms * width),
        CACHE: float(tokens * kv_bytes_per_token(own, dtype)),
    }


def shared(config: ModelConfig, tokens: int) -> dict[int, dict[str, float]]:
    """`held` by number of ranks, for those among which the model can be shared."""
    found = {}
    for ranks in RANKS:
        try:
            found[ranks] = held(config, ranks, tokens)
        except ValueError:
            continue
    return found


def per_rank() -> Panel:
    """A Panel over models, GPUs, contexts and batches: the bars of one rank among 1, 2, 4 ... others."""
    controls = {
        "model": choice(*SHAPES, value="Llama-3.1-70B"),
        "gpu": choice(*GPUS, value="A100 80GB", label="GPU"),
        "context": slider(*(2**i for i in range(9, 18)), value=8192),
        "batch": slider(*(2**i for i in range(9)), value=32),
    }
    return Panel.of(weigh, name="memory of one rank", **controls)


def weigh(model: str, gpu: str, context: int, batch: int) -> View:
    """The bars, with the sentence that says from where on it fits and where the cache stops to shrink."""
    config, room = SHAPES[model], USED * GPUS[gpu].memory
    bars = shared(config, context * batch)
    named = {_ranks(n): parts for n, parts in bars.items()}
    subtitle = f"{batch} sequences of {context:,} tokens, everything in 16 bits"
    figure = memory.chart(
        named, f"{model}, one rank", subtitle, room={f"{USED:.0%} of {gpu}: {engineering(room, 'B')}": room},
        caption=f"A card's gigabytes are GiB: {gpu} has {engineering(GPUS[gpu].memory, 'B')}. {LEFT}",
    )  # fmt: skip
    return View(figure, " ".join((_fits(bars, gpu, room), _stops(config, bars))).strip())


def _fits(bars: dict[int, dict[str, float]], gpu: str, room: float) -> str:
    enough = next((n for n, parts in bars.items() if sum(parts.values()) <= room), None)
    if enough is None:
        return f"It fits on none of these numbers of {gpu}."
    return f"It fits on {enough} x {gpu}, {engineering(sum(bars[enough].values()), 'B')} on each."


def _stops(config: ModelConfig, bars: dict[int, dict[str, float]]) -> str:
    most = max(bars)
    if most <= config.num_key_value_heads:
        return f"Every rank among {most} still has KV heads of its own, so the cache shrinks with the ranks."
    heads = config.num_key_value_heads
    return (
        f"Beyond {heads} ranks the cache shrinks no more: there are {heads} KV heads, and among {most} ranks each of "
        f"them lies on {most // heads}."
    )


def _ranks(count: int) -> str:
    return f"{count} rank" if count == 1 else f"{count} ranks"
