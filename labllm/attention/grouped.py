"""Decode attention over a KV cache: one query a sequence reads every key once.

The query heads that share a KV head are laid side by side as rows of one small matrix, [Hq, D] -> [Hkv, G, D]: the KV
cache is then read once and not repeated G times in memory. Compulsory bytes: 2 B Hkv T D e for the cache; FLOPs: 4 B
Hq T D, so G FLOPs an element read, far below any ridge: decode attention is memory-bound at every batch size. The
scores still visit memory, which is small here (T a head) and what flash-decoding removes.
"""

from __future__ import annotations

import torch

from labllm.attention.dense import check_dense


def grouped(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Attention `[B, Hq, 1, D]` of one query a sequence, q `[B, Hq, 1, D]`, over k, v `[B, Hkv, T, D]`."""
    check_dense(q, k, v, causal=True)
    batch, q_heads, queries, dim = q.shape
    if queries != 1:
        raise ValueError(f"grouped decode takes one query a sequence, got {queries}; use a prefill rung for more")
    q = q.view(batch, k.shape[1], q_heads // k.shape[1], dim) * dim**-0.5
    return ((q @ k.transpose(-1, -2)).softmax(-1) @ v).view(batch, q_heads, 1, dim)
