"""Rotary embedding of queries and keys, and the write of keys and values into a paged cache, in one launch.

Three things a layer does between its QKV GEMM and its attention: turn q, turn k, store k and v where their pages are.
A program takes one token with all its heads. It asks for q, k, v and the angles before it uses any, turns in float32,
and stores keys where the cache wants them, so that a turned key is never written and read in between. Pair j of D / 2
is (element j, element j + D / 2), as Hugging Face checkpoints have it:

    (a, b) -> (a cos - b sin, b cos + a sin)          Su et al. 2021, arXiv:2104.09864

2 T (Hq + 2 Hkv) D e bytes and the angles. Invariant: a token with slot -1 (padding of a captured graph) writes nothing
to the cache. It loses where an attention kernel can turn q while it loads it.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl


@triton.jit
def _halves(x, at, inside, HALF: tl.constexpr):
    first = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
    return first, tl.load(x + at + HALF, mask=inside, other=0.0).to(tl.float32)


@triton.jit
def _store_turned(x, at, inside, first, second, cos, sin, HALF: tl.constexpr):
    dtype = x.dtype.element_ty
    tl.store(x + at, (first * cos - second * sin).to(dtype), mask=inside)
    tl.store(x + at + HALF, (second * cos + first * sin).to(dtype), mask=inside)


@triton.jit
def _rope_kv_write(
    out, q, k, v, k_cache, v_cache, positions, cos_sin, slot_mapping,
    q_token, k_token, v_token, cache_block, cache_slot, cache_head,
    Q_HEADS: tl.constexpr, KV_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_SIZE: tl.constexpr,
    Q_ROWS: tl.constexpr, KV_ROWS: tl.constexpr, PAIRS: tl.constexpr,
):  # fmt: skip
    HALF: tl.constexpr = HEAD_DIM // 2
    token = tl.program_id(0).to(tl.int64)
    pair = tl.arange(0, PAIRS)[None, :]
    q_head, kv_head = tl.arange(0, Q_ROWS)[:, None], tl.arange(0, KV_ROWS)[:, None]
    q_inside, kv_inside = (q_head < Q_HEADS) & (pair < HALF), (kv_head < KV_HEADS) & (pair < HALF)
    q_at, kv_at = q_head * HEAD_DIM + pair, kv_head * HEAD_DIM + pair

    position, slot = tl.load(positions + token), tl.load(slot_mapping + token)
    q_first, q_second = _halves(q + token * q_token, q_at, q_inside, HALF)
    k_first, k_second = _halves(k + token * k_token, kv_at, kv_inside, HALF)
    v_first, v_second = _halves(v + token * v_token, kv_at, kv_inside, HALF)
    cos, sin = _halves(cos_sin + position * HEAD_DIM, pair, pair < HALF, HALF)

    _store_turned(out + token * Q_HEADS * HEAD_DIM, q_at, q_inside, q_first, q_second, cos, sin, HALF)
    page = slot // BLOCK_SIZE * cache_block + slot % BLOCK_SIZE * cache_slot
    cache_at, written = kv_head * cache_head + pair, kv_inside & (slot >= 0)
    _store_turned(k_cache + page, cache_at, written, k_first, k_second, cos, sin, HALF)
    dtype = v_cache.dtype.element_ty
    tl.store(v_cache + page + cache_at, v_first.to(dtype), mask=written)
    tl.store(v_cache + page + cache_at + HALF, v_second.to(dtype), mask=written)


def rope_kv_write(
    out: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    positions: torch.Tensor,
    cos_sin: torch.Tensor,
    slot_mapping: torch.Tensor,
    num_warps: int,
) -> None:
    """Launch: out `[T, Hq, D]` contiguous, the others as for `labllm.fusion.rope_kv_write`, which checks them."""
    (tokens, q_heads, dim), kv_heads = q.shape, k.shape[1]
    _rope_kv_write[(tokens,)](
        out, q, k, v, k_cache, v_cache, positions, cos_sin, slot_mapping,
        q.stride(0), k.stride(0), v.stride(0), *k_cache.stride()[:3],
        Q_HEADS=q_heads, KV_HEADS=kv_heads, HEAD_DIM=dim, BLOCK_SIZE=k_cache.shape[1],
        Q_ROWS=triton.next_power_of_2(q_heads), KV_ROWS=triton.next_power_of_2(kv_heads),
        PAIRS=triton.next_power_of_2(dim // 2), num_warps=num_warps,
    )  # fmt: skip
