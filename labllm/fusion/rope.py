"""Rotary embedding and the write into a KV cache: in one launch, kernels/rope_kv_write.py.

q [T, Hq, D] and k, v [T, Hkv, D] may be slices of what one QKV GEMM left: heads and elements lie side by side, tokens
at any stride. k_cache, v_cache are [num_blocks, block_size, Hkv, D], positions and slot_mapping [T] int64, and cos_sin
[positions, D] float32 holds cos beside sin. Captured CUDA graphs may hold it.

A contiguous cache [num_seqs, max_len, Hkv, D] is a paged one with a block a sequence: token p of row r has slot
r * max_len + p. A float8_e4m3fn cache comes with k_scale and v_scale, float32, one number or one a KV head: it holds
x / scale, rounded, and x is about what it holds times scale, as in vLLM.
"""

from __future__ import annotations

import torch
from torch import Tensor

from labllm.fusion.check_rope import check_head_weights, check_rope
from labllm.fusion.tiles import head_warps

TURNED, NORMALISED = 32, 64  # elements of q a thread: a head that is reduced wants to be in one warp


def rope_kv_write(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    positions: Tensor,
    cos_sin: Tensor,
    slot_mapping: Tensor,
    k_scale: Tensor | None = None,
    v_scale: Tensor | None = None,
) -> Tensor:
    """Turned q `[T, Hq, D]` contiguous; turned k and v go to their slots; slot -1 writes nothing.

    One dtype of float32, float16, bfloat16, one device; turned in float32. k_scale and v_scale go with float8_e4m3fn
    caches, and with no others. Raises ValueError for others.
    """
    check_rope(q, k, v, k_cache, v_cache, positions, cos_sin, slot_mapping, k_scale, v_scale)
    return _launch((q, k, v, k_cache, v_cache, positions, cos_sin, slot_mapping), k_scale, v_scale, {})


def qk_norm_rope_kv_write(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    q_weight: Tensor,
    k_weight: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    positions: Tensor,
    cos_sin: Tensor,
    slot_mapping: Tensor,
    eps: float = 1e-6,
    k_scale: Tensor | None = None,
    v_scale: Tensor | None = None,
) -> Tensor:
    """`rope_kv_write` of heads of q and k that are normalised first (RMSNorm over D, as in Qwen3), in the same launch.

    q_weight and k_weight are `[D]`, contiguous, in q's dtype; the others as for `rope_kv_write`. Raises ValueError.
    """
    check_rope(q, k, v, k_cache, v_cache, positions, cos_sin, slot_mapping, k_scale, v_scale)
    check_head_weights(q, q_weight=q_weight, k_weight=k_weight)
    norm = {"q_weight": q_weight, "k_weight": k_weight, "eps": eps}
    return _launch((q, k, v, k_cache, v_cache, positions, cos_sin, slot_mapping), k_scale, v_scale, norm)


def _launch(arguments: tuple[Tensor, ...], k_scale: Tensor | None, v_scale: Tensor | None, norm: dict) -> Tensor:
    q, k, *_ = arguments
    out = torch.empty_like(q, memory_format=torch.contiguous_format)
    if out.numel():
        from labllm.kernels import rope_kv_write as kernel

        warps = head_warps(q[0].numel(), NORMALISED if norm else TURNED)
        k_scale, v_scale = (scale if scale is None else scale.expand(k.shape[1]) for scale in (k_scale, v_scale))
        kernel.rope_kv_write(out, *arguments, warps, k_scale=k_scale, v_scale=v_scale, **norm)
    return out
