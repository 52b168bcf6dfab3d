"""Flash attention of new queries over a paged cache: kernels/flash_paged.py, checked and with its tiles chosen."""

from __future__ import annotations

import torch
from torch import Tensor

from labllm.attention.flash.check import check_kernel, check_query_len, check_starts
from labllm.attention.flash.tiles import PagedTiles, paged_tiles_for, section
from labllm.attention.paged.layout import check_paged
from labllm.hardware import this_machine


def flash_paged(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    block_table: Tensor,
    seq_lens: Tensor,
    cu_seqlens: Tensor,
    max_query_len: int,
    window: int | None = None,
    lse: Tensor | None = None,
    tiles: PagedTiles | None = None,
) -> Tensor:
    """Causal attention `[T, Hq, D]` of packed q `[T, Hq, D]` over k_cache, v_cache `[num_blocks, block_size, Hkv, D]`.

    block_table `[B, max_blocks]` and seq_lens `[B]` (keys visible to the last query, its own included) and cu_seqlens
    `[B + 1]` (where queries start) are int32. A sequence of length 0 gets zeros. lse `[Hq, T]` float32 receives the
    log-sum-exp of each query's scores. Raises ValueError for what does not fit.
    """
    check_starts("cu_seqlens", cu_seqlens, len(q), q.device)
    check_query_len(cu_seqlens, max_query_len)
    _check_pages(q, k_cache, v_cache, block_table, seq_lens, cu_seqlens, window)
    check_kernel(q, k_cache, v_cache, window, lse, (q.shape[1], len(q)))
    out = torch.empty_like(q)
    if out.numel() and max_query_len:
        from labllm.kernels import flash_paged as kernel

        machine, (_, q_heads, dim), kv_heads = this_machine(q.device.type), q.shape, k_cache.shape[2]
        room = block_table.shape[1] * k_cache.shape[1]
        together = section(room, q_heads, kv_heads, dim, q.element_size(), machine)
        heads = len(seq_lens) * q_heads
        tiles = tiles or paged_tiles_for(dim, q.dtype, max_query_len, heads, q_heads // kv_heads, machine)
        kernel.flash_paged(
            out, q, k_cache, v_cache, lse, block_table, seq_lens, cu_seqlens, max_query_len, window,
            together // tiles.shared, tiles.shared, *tiles.tiles, tiles.registers,
        )  # fmt: skip
    return out


def _check_pages(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    block_table: Tensor,
    seq_lens: Tensor,
    cu_seqlens: Tensor,
    window: int | None,
) -> None:
    if len(cu_seqlens) != len(seq_lens) + 1:
        raise ValueError(
            f"cu_seqlens must be [B + 1] for the B sequences of seq_lens, got {len(cu_seqlens)} and {len(seq_lens)}"
        )
    if q.dim() != 3:
        raise ValueError(f"q must be packed as [T, Hq, D], got {list(q.shape)}")
    one_each = q[:1].expand(len(seq_lens), -1, -1) if len(q) else q.new_empty(len(seq_lens), *q.shape[1:])
    check_paged(one_each, k_cache, v_cache, block_table, seq_lens, window)
