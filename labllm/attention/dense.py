"""The question that every attention rung answers, in torch's dense layout, and its answer in float64.

q [B, Hq, Tq, D], k and v [B, Hkv, Tk, D]; query head h reads KV head h // (Hq / Hkv) (grouped-query attention). A
causal mask is aligned bottom right: query i of Tq sees keys up to Tk - Tq + i, so that a cached prefix is seen whole.
Aligning it top left, as a square mask sliced to [Tq, Tk] does, hides the prefix: the commonest mistake with a cache.

    out = softmax(q k^T / sqrt(D) + mask) v          Vaswani et al., "Attention is all you need", 2017
"""

from __future__ import annotations

from typing import NamedTuple

import torch

REFERENCE_BYTES = 2**28


class Dense(NamedTuple):
    """q [B, Hq, Tq, D], k and v [B, Hkv, Tk, D], and whether the mask is causal: what a dense rung is given."""

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    causal: bool


def check_dense(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> None:
    """Refuse tensors that do not fit the dense layout: ValueError says what was wrong and what would be right."""
    if q.dim() != 4 or k.dim() != 4 or k.shape != v.shape:
        raise ValueError(
            f"q must be [B, Hq, Tq, D] and k, v [B, Hkv, Tk, D], got {list(q.shape)}, {list(k.shape)}, {list(v.shape)}"
        )
    if (q.shape[0], q.shape[3]) != (k.shape[0], k.shape[3]):
        raise ValueError(f"q and k must share batch and head_dim, got {list(q.shape)} and {list(k.shape)}")
    if q.shape[1] % k.shape[1]:
        raise ValueError(f"query heads must be a multiple of KV heads, got {q.shape[1]} and {k.shape[1]}")
    if causal and q.shape[2] > k.shape[2]:
        raise ValueError(
            f"a causal mask needs at least as many keys as queries, got {q.shape[2]} queries and {k.shape[2]} keys"
        )
    if not q.dtype == k.dtype == v.dtype or not q.device == k.device == v.device:
        raise ValueError(
            f"q, k and v must share dtype and device, got {q.dtype}, {k.dtype}, {v.dtype} "
            f"on {q.device}, {k.device}, {v.device}"
        )


def causal_mask(queries: int, keys: int, device: torch.device | str | None = None) -> torch.Tensor:
    """`[Tq, Tk]` bool, True where query i may see key j: j <= Tk - Tq + i."""
    return torch.ones(queries, keys, dtype=torch.bool, device=device).tril(keys - queries)


def reference(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, rows: torch.Tensor | None, causal: bool
) -> torch.Tensor:
    """Float64 attention for `rows` of the output flattened to [B * Hq * Tq, D] (None: all rows), `[R, D]`.

    Keys are gathered a few rows at a time, so that a reference at benchmark size fits in memory.
    """
    batch, q_heads, queries, dim = q.shape
    kv_heads, keys = k.shape[1], k.shape[2]
    rows = torch.arange(batch * q_heads * queries, device=q.device) if rows is None else rows
    step = max(1, REFERENCE_BYTES // (8 * keys * dim))
    return torch.cat([_rows(q, k, v, part, causal, q_heads // kv_heads) for part in rows.split(step)])


def _rows(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, rows: torch.Tensor, causal: bool, group: int
) -> torch.Tensor:
    _, q_heads, queries, dim = q.shape
    b, h, i = rows // (q_heads * queries), rows // queries % q_heads, rows % queries
    scores = torch.einsum("rd,rkd->rk", q[b, h, i].double(), k[b, h // group].double()) / dim**0.5
    if causal:
        last = k.shape[2] - queries + i
        scores.masked_fill_(torch.arange(k.shape[2], device=q.device) > last[:, None], float("-inf"))
    return torch.einsum("rk,rkd->rd", scores.softmax(-1), v[b, h // group].double())
