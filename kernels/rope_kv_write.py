"""Rotary embedding of queries and keys, and the write of keys and values into a cache, in one launch.

Three things a layer does between its QKV GEMM and its attention: turn q, turn k, store k and v where their pages are.
A program takes one token with all its heads. It asks for q, k, v and the angles before it uses any, turns in float32,
and stores keys where the cache wants them, so that a turned key is never written and read in between. Pair j of D / 2
is (element j, element j + D / 2), as Hugging Face checkpoints have it:

    (a, b) -> (a cos - b sin, b cos + a sin)          Su et al. 2021, arXiv:2104.09864

Two more things join where their tensors are given. With q_weight and k_weight each head of q and k is normalised
before it is turned (QK-norm; Henry et al. 2020, arXiv:2010.04245, as RMSNorm): its row is in registers already. With
k_scale and v_scale the cache holds x / scale, rounded to its dtype (float8) from float32.

2 T (Hq + 2 Hkv) D e bytes and the angles, with a float8 cache T Hkv D (2 e - 2) fewer. Invariant: a token with slot -1
(padding of a captured graph) writes nothing to the cache. It loses where an attention kernel can turn q while it loads
it.
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
def _normalised(first, second, weight, pair, eps, HEAD_DIM: tl.constexpr, HALF: tl.constexpr):
    """RMSNorm of heads `[heads, D]`, given and returned as halves."""
    scale = tl.rsqrt(tl.sum(first * first + second * second, axis=1) / HEAD_DIM + eps)[:, None]
    first_weight, second_weight = _halves(weight, pair, pair < HALF, HALF)
    return first * scale * first_weight, second * scale * second_weight


@triton.jit
def _store_turned(x, at, inside, first, second, cos, sin, HALF: tl.constexpr):
    dtype = x.dtype.element_ty
    tl.store(x + at, (first * cos - second * sin).to(dtype), mask=inside)
    tl.store(x + at + HALF, (second * cos + first * sin).to(dtype), mask=inside)


@triton.jit
def _rope_kv_write(
    out, q, k, v, k_cache, v_cache, positions, cos_sin, slot_mapping, q_weight, k_weight, k_scale, v_scale, eps,
    q_token, k_token, v_token, cache_block, cache_slot, cache_head, scale_head,
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
    if q_weight is not None:
        q_first, q_second = _normalised(q_first, q_second, q_weight, pair, eps, HEAD_DIM, HALF)
        k_first, k_second = _normalised(k_first, k_second, k_weight, pair, eps, HEAD_DIM, HALF)
    if k_scale is not None:
        k_steps = 1.0 / tl.load(k_scale + kv_head * scale_head, mask=kv_head < KV_HEADS, other=1.0)
        v_steps = 1.0 / tl.load(v_scale + kv_head * scale_head, mask=kv_head < KV_HEADS, other=1.0)
        k_first, k_second = k_first * k_steps, k_second * k_steps
        v_first, v_second = v_first * v_steps, v_second * v_steps

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
    *,
    q_weight: torch.Tensor | None = None,
    k_weight: torch.Tensor | None = None,
    eps: float = 0.0,
    k_scale: torch.Tensor | None = None,
    v_scale: torch.Tensor | None = None,
) -> None:
    """Launch: out `[T, Hq, D]` contiguous; q_weight and k_weight `[D]` in q's dtype, or neither; k_scale and v_scale
    `[Hkv]` float32 of the same stride, which may be 0, or neither; the others as for `labllm.fusion.rope_kv_write`,
    which checks them.
    """
    (tokens, q_heads, dim), kv_heads = q.shape, k.shape[1]
    _rope_kv_write[(tokens,)](
        out, q, k, v, k_cache, v_cache, positions, cos_sin, slot_mapping, q_weight, k_weight, k_scale, v_scale, eps,
        q.stride(0), k.stride(0), v.stride(0), *k_cache.stride()[:3], 0 if k_scale is None else k_scale.stride(0),
        Q_HEADS=q_heads, KV_HEADS=kv_heads, HEAD_DIM=dim, BLOCK_SIZE=k_cache.shape[1],
        Q_ROWS=triton.next_power_of_2(q_heads), KV_ROWS=triton.next_power_of_2(kv_heads),
        PAIRS=triton.next_power_of_2(dim // 2), num_warps=num_warps,
    )  # fmt: skip
