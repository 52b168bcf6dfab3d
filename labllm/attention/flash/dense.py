"""Flash attention of dense and of packed batches: kernels/flash.py with its arguments checked and its tiles chosen."""

from __future__ import annotations

import torch
from torch import Tensor

from labllm.attention.dense import check_dense
from labllm.attention.flash.check import check_kernel, check_packed
from labllm.attention.flash.tiles import Tiles, section, tiles_for
from labllm.hardware import this_machine


def flash(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    causal: bool = True,
    window: int | None = None,
    lse: Tensor | None = None,
    tiles: Tiles | None = None,
) -> Tensor:
    """Attention `[B, Hq, Tq, D]` of q `[B, Hq, Tq, D]` over k, v `[B, Hkv, Tk, D]`, causal aligned bottom right.

    window: a query sees only the last `window` of its keys. lse `[B, Hq, Tq]` float32 receives the log-sum-exp of each
    query's scores, by which answers over parts of the keys are merged. Any strides, the last one 1. Raises ValueError.
    """
    check_dense(q, k, v, causal)
    check_window(window, causal)
    check_kernel(q, k, v, window, lse, q.shape[:3])
    out = torch.empty_like(q)
    if out.numel():
        from labllm.kernels import flash as kernel

        machine = this_machine(q.device.type)
        heads = section(k.shape[2], q.shape[1], k.shape[1], q.shape[3], q.element_size(), machine)
        tiles = tiles or tiles_for(q.shape[3], q.dtype, machine)
        kernel.flash(out, q, k, v, lse, None, q.shape[2], causal, window, heads, *tiles)
    return out


def flash_varlen(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_query_len: int,
    causal: bool = True,
    window: int | None = None,
    lse: Tensor | None = None,
    tiles: Tiles | None = None,
) -> Tensor:
    """Attention `[T, Hq, D]` of packed sequences: q `[T, Hq, D]`, k, v `[Tk, Hkv, D]`, starts `[B + 1]` int32.

    Each sequence attends to its own keys, causal aligned bottom right; one without keys gets zeros. max_query_len is
    the longest query on the host, so that nothing waits for the device. lse `[Hq, T]`. Raises ValueError.
    """
    check_packed(q, k, v, {"cu_seqlens_q": cu_seqlens_q, "cu_seqlens_k": cu_seqlens_k}, max_query_len)
    check_window(window, causal)
    check_kernel(q, k, v, window, lse, (q.shape[1], len(q)))
    out = torch.empty_like(q)
    if out.numel() and max_query_len:
        from labllm.kernels import flash as kernel

        machine = this_machine(q.device.type)
        mean = len(k) // max(1, len(cu_seqlens_k) - 1)
        heads = section(mean, q.shape[1], k.shape[1], q.shape[2], q.element_size(), machine)
        tiles = tiles or tiles_for(q.shape[2], q.dtype, machine)
        starts = cu_seqlens_q, cu_seqlens_k
        kernel.flash(out, q, k, v, lse, starts, max_query_len, causal, window, heads, *tiles)
    return out


def check_window(window: int | None, causal: bool) -> None:
    """Refuse a window without a causal mask, which would not say where it ends."""
    if window is not None and not causal:
        raise ValueError("a window counts back from the query's own key, so it needs a causal mask")
