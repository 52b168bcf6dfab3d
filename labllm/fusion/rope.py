"""Rotary embedding and the write into a paged cache: unfused in torch, and in one launch (kernels/rope_kv_write.py).

q [T, Hq, D] and k, v [T, Hkv, D] may be slices of what one QKV GEMM left: heads and elements lie side by side, tokens
at any stride. k_cache, v_cache are [num_blocks, block_size, Hkv, D], positions and slot_mapping [T] int64, and cos_sin
[positions, D] float32 holds cos beside sin. Captured CUDA graphs may hold both.
"""

from __future__ import annotations

import torch
from torch import Tensor

from labllm.fusion.check import check_dtype


def eager_rope_kv_write(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    positions: Tensor,
    cos_sin: Tensor,
    slot_mapping: Tensor,
) -> Tensor:
    """Turned q `[T, Hq, D]`; turned k and v go to their slots, all of which must be >= 0.

    Each product, sum, concatenation and scatter is a launch: q and k are written and read several times over.
    """
    cos, sin = cos_sin[positions].unsqueeze(1).to(q.dtype).chunk(2, dim=-1)
    block, slot = slot_mapping // k_cache.shape[1], slot_mapping % k_cache.shape[1]
    k_cache[block, slot] = _turn(k, cos, sin)
    v_cache[block, slot] = v
    return _turn(q, cos, sin)


def rope_kv_write(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    positions: Tensor,
    cos_sin: Tensor,
    slot_mapping: Tensor,
) -> Tensor:
    """Turned q `[T, Hq, D]` contiguous; turned k and v go to their slots; slot -1 writes nothing.

    One dtype of float32, float16, bfloat16, one device; turned in float32. Raises ValueError for others.
    """
    _check(q, k, v, k_cache, v_cache, positions, cos_sin, slot_mapping)
    out = torch.empty_like(q, memory_format=torch.contiguous_format)
    if out.numel():
        from labllm.kernels import rope_kv_write as kernel

        warps = min(8, max(1, (1 << (q[0].numel() - 1).bit_length()) // 1024))
        kernel.rope_kv_write(out, q, k, v, k_cache, v_cache, positions, cos_sin, slot_mapping, warps)
    return out


def _turn(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


def _check(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    positions: Tensor,
    cos_sin: Tensor,
    slot_mapping: Tensor,
) -> None:
    if q.dim() != 3 or k.shape != v.shape or k.dim() != 3 or (len(q), q.shape[2]) != (len(k), k.shape[2]):
        raise ValueError(
            f"q must be [T, Hq, D] and k, v [T, Hkv, D], got {list(q.shape)}, {list(k.shape)}, {list(v.shape)}"
        )
    tokens, dim = len(q), q.shape[2]
    if dim % 2 or not q.shape[1] * k.shape[1] * dim:
        raise ValueError(f"head_dim must be even, for it is turned in pairs, and no size but T may be 0, got {dim}")
    if k_cache.dim() != 4 or k_cache.shape[2:] != k.shape[1:] or v_cache.shape != k_cache.shape:
        raise ValueError(
            f"k_cache and v_cache must be [num_blocks, block_size, {k.shape[1]}, {dim}], "
            f"got {list(k_cache.shape)} and {list(v_cache.shape)}"
        )
    if k_cache.stride() != v_cache.stride() or k_cache.stride(3) != 1:
        raise ValueError(
            f"k_cache and v_cache must share strides, the last of them 1, got {k_cache.stride()} and {v_cache.stride()}"
        )
    for name, tensor in {"q": q, "k": k, "v": v}.items():
        if tokens and not tensor[0].is_contiguous():
            raise ValueError(f"heads and elements of {name} must lie side by side, got strides {tensor.stride()}")
    for name, tensor in {"positions": positions, "slot_mapping": slot_mapping}.items():
        if tensor.shape != (tokens,) or tensor.dtype != torch.int64 or not tensor.is_contiguous():
            raise ValueError(f"{name} must be [{tokens}] int64, contiguous, got {list(tensor.shape)} {tensor.dtype}")
    if cos_sin.dim() != 2 or cos_sin.shape[1] != dim or cos_sin.dtype != torch.float32 or not cos_sin.is_contiguous():
        raise ValueError(
            f"cos_sin must be [positions, {dim}] float32, contiguous, got {list(cos_sin.shape)} {cos_sin.dtype}"
        )
    if len({x.device for x in (q, positions, cos_sin, slot_mapping)}) > 1:
        raise ValueError(
            f"all tensors must be on one device, got q on {q.device}, positions on {positions.device}, "
            f"cos_sin on {cos_sin.device}, slot_mapping on {slot_mapping.device}"
        )
    check_dtype(q=q, k=k, v=v, k_cache=k_cache, v_cache=v_cache)
    if q.device.type == "cpu" and tokens:
        _check_values(positions, len(cos_sin), "positions", 0)
        _check_values(slot_mapping, k_cache.shape[0] * k_cache.shape[1], "slot_mapping", -1)


def _check_values(tensor: Tensor, end: int, name: str, first: int) -> None:
    """Looking at values costs nothing on a CPU."""
    low, high = int(tensor.min()), int(tensor.max())
    if low < first or high >= end:
        raise ValueError(f"{name} must lie in {first} .. {end - 1}, got {low} to {high}")
