"""RoPE, QK-norm and KV-cache write, unfused: the rungs that the launch in `rope.py` replaces.

Each product, sum, concatenation and scatter is a launch, and q and k are written and read several times over. Shapes
are those of `rope.py`; slots must be >= 0.
"""

from __future__ import annotations

import torch
from torch import Tensor

from labllm.fusion.codes import LIMITS
from labllm.fusion.eager import rms_norm


def eager_rope_kv_write(
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
    """Turned q `[T, Hq, D]`; turned k and v go to their slots, divided by their scales where these are given."""
    cos, sin = cos_sin[positions].unsqueeze(1).to(q.dtype).chunk(2, dim=-1)
    block, slot = slot_mapping // k_cache.shape[1], slot_mapping % k_cache.shape[1]
    _store(k_cache, block, slot, _turn(k, cos, sin), k_scale)
    _store(v_cache, block, slot, v, v_scale)
    return _turn(q, cos, sin)


def eager_qk_norm_rope_kv_write(
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
    eps: float,
) -> Tensor:
    """As `eager_rope_kv_write`, of heads of q and k that are normalised first, with weights `[D]`."""
    q, k = rms_norm(q, q_weight, eps), rms_norm(k, k_weight, eps)
    return eager_rope_kv_write(q, k, v, k_cache, v_cache, positions, cos_sin, slot_mapping)


def _turn(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


def _store(cache: Tensor, block: Tensor, slot: Tensor, x: Tensor, scale: Tensor | None) -> None:
    if scale is not None:
        limit = LIMITS[cache.dtype]
        x = (x / scale.view(-1, 1)).clamp(-limit, limit).to(cache.dtype).view(torch.uint8)
        cache = cache.view(torch.uint8)  # not every device indexes float8
    cache[block, slot] = x
