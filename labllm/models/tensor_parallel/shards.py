"""What of a model each rank holds: its config, and its slice of every tensor of a checkpoint.

    rows      q, k, v (by heads), gate, up (by width), embedding and head (by vocabulary)
    columns   o (by heads), down (by width)
    whole     norms; the biases of o and down, which the first rank alone adds

A rank's config is the model's with fewer heads, KV heads and a narrower MLP, so whatever is built from it (layers,
packed layers, a KV cache) has a rank's size without knowing of ranks. Needs no device and no process.

Invariant: the slices of all ranks, side by side, are the tensor (KV heads as often as they are replicated).
"""

from __future__ import annotations

from dataclasses import replace

from labllm.models.config import ModelConfig
from labllm.parallel.slices import COLUMNS, ROWS, Slice, Slices
from labllm.parallel.split import part, split_heads, split_vocabulary


def local_config(config: ModelConfig, rank: int, size: int) -> ModelConfig:
    """The config of one rank's layers: hidden_size, head_dim and vocab_size stay whole.

    Raises ValueError in one sentence where heads, KV heads or MLP width cannot be shared among `size` ranks.
    """
    heads = split_heads(config.num_attention_heads, config.num_key_value_heads, rank, size)
    inner = part(config.intermediate_size, rank, size, "intermediate_size")
    return replace(
        config,
        num_attention_heads=len(heads.q),
        num_key_value_heads=len(heads.kv),
        intermediate_size=len(inner),
    )


def slices(config: ModelConfig, rank: int, size: int) -> Slices:
    """Which slice of each tensor the rank holds. Raises ValueError as `local_config`."""
    heads = split_heads(config.num_attention_heads, config.num_key_value_heads, rank, size)
    q, kv = (range(r.start * config.head_dim, r.stop * config.head_dim) for r in heads)
    inner = part(config.intermediate_size, rank, size, "intermediate_size")
    vocabulary = split_vocabulary(config.vocab_size, rank, size)
    rows = {"q_proj": q, "k_proj": kv, "v_proj": kv, "gate_proj": inner, "up_proj": inner}
    columns = {"o_proj": q, "down_proj": inner}

    def slice_of(name: str) -> Slice | None:
        *_, module, leaf = name.split(".")
        if module in rows:
            return Slice(ROWS, rows[module], len(rows[module]))
        if module in columns and leaf == "weight":
            return Slice(COLUMNS, columns[module], len(columns[module]))
        if module in ("embed_tokens", "lm_head"):
            return Slice(ROWS, *vocabulary)
        return None

    return slice_of


def holds(name: str, rank: int) -> bool:
    """Whether the rank holds any of a tensor: a bias behind an all-reduce is the first rank's alone."""
    return rank == 0 or not name.endswith(("o_proj.bias", "down_proj.bias"))
