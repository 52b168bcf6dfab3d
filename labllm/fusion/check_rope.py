"""What RoPE and KV-cache write refuse, each in a sentence that says what would be right."""

from __future__ import annotations

import torch
from torch import Tensor

from labllm.fusion.check import check_dtype, no_float8

FLOAT8 = torch.float8_e4m3fn


def check_rope(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    positions: Tensor,
    cos_sin: Tensor,
    slot_mapping: Tensor,
    k_scale: Tensor | None,
    v_scale: Tensor | None,
) -> None:
    """Refuse shapes, strides, dtypes and devices that `labllm.fusion.rope_kv_write` does not take: ValueError."""
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
    if FLOAT8 in (k_cache.dtype, v_cache.dtype) or k_scale is not None or v_scale is not None:
        _check_float8(k_cache, v_cache, k_scale, v_scale)
        check_dtype(q=q, k=k, v=v)
    else:
        check_dtype(q=q, k=k, v=v, k_cache=k_cache, v_cache=v_cache)
    if q.device.type == "cpu" and tokens:
        _check_values(positions, len(cos_sin), "positions", 0)
        _check_values(slot_mapping, k_cache.shape[0] * k_cache.shape[1], "slot_mapping", -1)


def check_head_weights(q: Tensor, **weights: Tensor) -> None:
    """Refuse weights of QK-norm that are not `[D]` in the dtype of q `[T, Hq, D]`: ValueError."""
    for name, weight in weights.items():
        if weight.shape != q.shape[2:] or not weight.is_contiguous():
            raise ValueError(
                f"{name} must be [{q.shape[2]}], one element of a head each, contiguous, got {list(weight.shape)}"
            )
    check_dtype(q=q, **weights)


def _check_float8(k_cache: Tensor, v_cache: Tensor, k_scale: Tensor | None, v_scale: Tensor | None) -> None:
    if k_cache.dtype != FLOAT8 or v_cache.dtype != FLOAT8 or k_scale is None or v_scale is None:
        raise ValueError(
            "float8_e4m3fn caches need k_scale and v_scale, and other caches take none, got caches of "
            f"{k_cache.dtype} and {v_cache.dtype} {'without' if k_scale is None or v_scale is None else 'with'} both"
        )
    heads = k_cache.shape[2]
    for name, scale in {"k_scale": k_scale, "v_scale": v_scale}.items():
        if scale.dtype != torch.float32 or scale.shape not in ((), (1,), (heads,)) or scale.shape != k_scale.shape:
            raise ValueError(
                f"k_scale and v_scale must be float32, both one number or both [{heads}], one a KV head, "
                f"got {name} {list(scale.shape)} {scale.dtype}"
            )
    if len({x.device for x in (k_cache, v_cache, k_scale, v_scale)}) > 1:
        raise ValueError(f"k_scale and v_scale must be on the caches' device, {k_cache.device}, got {k_scale.device}")
    if reason := no_float8(k_cache.device.type):
        raise ValueError(reason)


def _check_values(tensor: Tensor, end: int, name: str, first: int) -> None:
    """Looking at values costs nothing on a CPU."""
    low, high = int(tensor.min()), int(tensor.max())
    if low < first or high >= end:
        raise ValueError(f"{name} must lie in {first} .. {end - 1}, got {low} to {high}")
