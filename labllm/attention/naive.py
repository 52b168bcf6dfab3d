"""Attention as the formula is written: the whole score matrix is made, masked, normalised and read again.

Cost beyond the compulsory bytes, with S = B Hq Tq Tk scores of e bytes: written by QK^T, read and written by the mask
(which a single query does not need), read and written by softmax, read by PV: 6 S e. K and V are first repeated for
every query head. It is right at any shape and loses as soon as S outgrows the cache, quadratically with length; it is
the rung that every other one is checked against.
"""

from __future__ import annotations

import torch

from labllm.attention.dense import causal_mask, check_dense
from labllm.roofline import Cost


def naive(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool = True) -> torch.Tensor:
    """Attention `[B, Hq, Tq, D]` of q `[B, Hq, Tq, D]` over k, v `[B, Hkv, Tk, D]`."""
    check_dense(q, k, v, causal)
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
    scores = (q * q.shape[-1] ** -0.5) @ k.transpose(-1, -2)  # [B, Hq, Tq, Tk]
    if causal and q.shape[2] > 1:
        scores = scores.masked_fill(~causal_mask(q.shape[2], k.shape[2], q.device), float("-inf"))
    return scores.softmax(-1) @ v


def naive_cost(
    batch: int, queries: int, keys: int, q_heads: int, kv_heads: int, head_dim: int, element: float, causal: bool = True
) -> Cost:
    """What `naive` moves: Q and O, K and V read and repeated, and each pass over the scores; masked pairs are computed
    too.
    """
    scores = batch * q_heads * queries * keys
    passes = 6 if causal and queries > 1 else 4
    rows = 2 * q_heads * queries + 2 * keys * (kv_heads + (2 * q_heads if q_heads > kv_heads else 0))
    return Cost(4.0 * scores * head_dim, element * (batch * head_dim * rows + passes * scores))


def naive_memory(batch: int, queries: int, keys: int, q_heads: int, head_dim: int, element: float) -> float:
    """Bytes that `naive` holds at its peak: two score matrices, and K and V repeated."""
    return element * batch * q_heads * (2 * queries * keys + 2 * keys * head_dim + 2 * queries * head_dim)
