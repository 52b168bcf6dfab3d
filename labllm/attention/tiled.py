"""Flash attention in plain torch: the online softmax, a tile of keys at a time, to be read beside its formula.

For each query the walk keeps m, the largest score so far, l, the sum of exp(s - m), and acc, the values weighted by
it. A tile of scores s_j with a larger maximum m' rescales what was summed under the old one:

    m' = max(m, max_j s_j)
    l' = l exp(m - m') + sum_j exp(s_j - m')
    acc' = acc exp(m - m') + sum_j exp(s_j - m') v_j

In the end acc / l is softmax(s) v, whatever the tiles were. Milakov & Gimelshein, "Online normalizer calculation for
softmax", 2018; Dao et al., "FlashAttention: fast and memory-efficient exact attention with IO-awareness", 2022.

Cost: at any time only one tile of scores exists, and tiles that a causal mask hides are never made, half of all.
Memory so grows with length and not with its square. It loses to `naive` on time wherever the scores fit: each step is
several small operators, and between them the tiles still visit memory. Only a kernel keeps them on the chip.
"""

from __future__ import annotations

import torch
from torch import Tensor

from labllm.attention.dense import check_dense
from labllm.roofline import Cost

TILE = 512


def tiled(q: Tensor, k: Tensor, v: Tensor, causal: bool = True, tile: int = TILE) -> Tensor:
    """Attention `[B, Hq, Tq, D]` of q `[B, Hq, Tq, D]` over k, v `[B, Hkv, Tk, D]`, `tile` queries and keys at a time.

    Sums are kept in float32 or better. Raises ValueError for what does not fit the layout.
    """
    check_dense(q, k, v, causal)
    out = torch.empty_like(q).unflatten(1, (k.shape[1], -1))  # [B, Hkv, G, Tq, D]: a group shares its keys
    q = (q * q.shape[-1] ** -0.5).unflatten(1, (k.shape[1], -1))
    k, v = k.unsqueeze(2), v.unsqueeze(2)
    for first in range(0, q.shape[3], tile):
        rows = slice(first, first + tile)
        out[:, :, :, rows] = _walk(q[:, :, :, rows], k, v, k.shape[3] - q.shape[3] + first, causal, tile)
    return out.flatten(1, 2)


def _walk(q: Tensor, k: Tensor, v: Tensor, position: int, causal: bool, tile: int) -> Tensor:
    """One tile of scaled queries, the first of which stands at `position`, along all keys that it sees."""
    exact = torch.promote_types(q.dtype, torch.float32)
    m = q.new_full((*q.shape[:-1], 1), float("-inf"), dtype=exact)
    l = torch.zeros_like(m)
    acc = torch.zeros_like(q, dtype=exact)
    positions = torch.arange(position, position + q.shape[-2], device=q.device).unsqueeze(1)
    for start in range(0, position + q.shape[-2] if causal else k.shape[-2], tile):
        k_tile, v_tile = k[..., start : start + tile, :], v[..., start : start + tile, :]
        s = (q @ k_tile.transpose(-1, -2)).to(exact)
        if causal and start + tile > position + 1:
            s = s.masked_fill(torch.arange(start, start + s.shape[-1], device=q.device) > positions, float("-inf"))
        m_new = torch.maximum(m, s.amax(-1, keepdim=True))
        p = torch.exp(s - m_new)
        alpha = torch.exp(m - m_new)
        l = l * alpha + p.sum(-1, keepdim=True)
        acc = acc * alpha + (p.to(v.dtype) @ v_tile).to(exact)
        m = m_new
    return (acc / l).to(q.dtype)


def tiled_cost(
    batch: int, queries: int, keys: int, q_heads: int, kv_heads: int, head_dim: int, element: float, causal: bool
) -> Cost:
    """What `tiled` moves: q and out; for each tile of queries all keys and values that it sees; for each tile of scores
    six visits in float32 (written, read and written by exp, read by the sum and by the conversion, read again to
    multiply), and acc read and written once.
    """
    pairs = walked = steps = 0
    for first in range(0, queries, TILE):
        rows = min(TILE, queries - first)
        seen = min(keys, keys - queries + first + TILE) if causal else keys
        pairs, walked, steps = pairs + rows * seen, walked + seen, steps + rows * -(-seen // TILE)
    moved = element * head_dim * (2 * q_heads * queries + 2 * kv_heads * walked) + 4 * q_heads * (
        6 * pairs + 2 * steps * head_dim
    )
    return Cost(4.0 * batch * q_heads * pairs * head_dim, batch * moved)


def tiled_memory(batch: int, q_heads: int, head_dim: int, queries: int, element: float) -> float:
    """Bytes that `tiled` holds at its peak: out and scaled queries, and for one tile the scores four times and acc."""
    tile = min(TILE, queries)
    return batch * q_heads * (2 * queries * head_dim * element + 4 * tile * (4 * TILE + 3 * head_dim))
