"""Flash attention of new queries over keys that lie in pages: chunked prefill, or a prompt behind a cached prefix.

Only where a key lies differs from `flash`: token n of a sequence is slot n % block_size of the page that its row of
the block table names at n // block_size. The page is looked up for every token of a tile, so a tile need not fit a
page, and pages of 8 tokens cost what pages of 256 do, up to the reads of the table (4 bytes a token, from L1). The
look-up is a tile ahead of the loads that need it: else keys wait for page numbers, and the pipeline holds a stage less.

A tile of BLOCK_M rows is BLOCK_M / SHARED queries of SHARED heads that read the same keys, as grouped-query attention
has them: the fewer queries a tile spans, the fewer keys it meets of which some see only a part.

Cost: as `flash`, and the table once a tile. Invariant: as `flash`; an entry past a sequence's length is never read.
It loses to `flash` on contiguous keys by the look-ups, which keep the loads of a tile from being one block, and to
split-KV decode on single queries.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl

from .flash import FLOOR, extent, finish, hide, place, update
from .paged_decode import pages_of


@triton.jit
def _walk(
    acc, l, m, q, k, v, table, kv_block, kv_slot, positions, begin, end, k_len, window, scale,
    BLOCK_SIZE: tl.constexpr, DIM: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    dims = tl.arange(0, BLOCK_D)
    page = pages_of(table, begin + tl.arange(0, BLOCK_N), k_len, BLOCK_SIZE)
    for start in range(begin, end, BLOCK_N):
        keys = start + tl.arange(0, BLOCK_N)
        at = page.to(tl.int64) * kv_block + keys % BLOCK_SIZE * kv_slot
        inside = (keys < k_len if MASKED else keys >= 0)[:, None] & (dims < DIM)[None, :]
        k_tile = tl.load(k + at[:, None] + dims[None, :], mask=inside, other=0.0)
        page = pages_of(table, keys + BLOCK_N, k_len, BLOCK_SIZE)
        scores = tl.dot(q, tl.trans(k_tile), input_precision="ieee")
        if MASKED:
            scores = hide(scores, positions, keys, k_len, window, True)
        v_tile = tl.load(v + at[:, None] + dims[None, :], mask=inside, other=0.0)
        acc, l, m = update(acc, l, m, scores, v_tile, scale)
    return acc, l, m


# What differs from step to step, the places where a batch's lengths and tables begin among it, compiles nothing anew.
VARYING = ["q_starts", "seq_lens", "table", "table_row", "window", "tiles", "units", "section"]


@triton.jit(do_not_specialize=VARYING)
def _flash_paged(
    q, k, v, out, lse, q_starts, seq_lens, table, window, scale, tiles, units, section, q_head, q_row, kv_block,
    kv_slot, kv_head, out_head, out_row, lse_head, table_row,
    Q_HEADS: tl.constexpr, GROUP: tl.constexpr, SHARED: tl.constexpr, BLOCK_SIZE: tl.constexpr, DIM: tl.constexpr,
    BLOCK_D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """One tile of queries of SHARED heads, a unit; grid (tiles * units,), units over the sequences. Causal, bottom
    right."""
    QUERIES: tl.constexpr = BLOCK_M // SHARED
    UNITS: tl.constexpr = Q_HEADS // SHARED
    tile, unit = place(tiles, units, section)
    b, h = (unit // UNITS).to(tl.int64), (unit % UNITS).to(tl.int64) * SHARED
    m0 = tile * QUERIES
    q_start = tl.load(q_starts + b).to(tl.int64)
    q_len = (tl.load(q_starts + b + 1) - q_start).to(tl.int32)
    if m0 >= q_len:
        return
    k_len = tl.load(seq_lens + b)
    shift = k_len - q_len
    row, dims = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_D)
    rows, heads = m0 + row // SHARED, h + row % SHARED
    real = (rows < q_len) & (row < QUERIES * SHARED)
    inside = real[:, None] & (dims < DIM)[None, :]
    query = tl.load(q + ((q_start + rows) * q_row + heads * q_head)[:, None] + dims[None, :], mask=inside, other=0.0)
    k += h // GROUP * kv_head
    v += h // GROUP * kv_head
    table += b * table_row

    acc = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)
    l = tl.zeros([BLOCK_M], tl.float32)
    m = tl.full([BLOCK_M], FLOOR, tl.float32)
    begin, whole_begin, whole_end, end = extent(m0, shift, k_len, window, QUERIES, BLOCK_N, True)
    if window is not None:
        acc, l, m = _walk(
            acc, l, m, query, k, v, table, kv_block, kv_slot, shift + rows, begin, whole_begin, k_len,
            window, scale, BLOCK_SIZE, DIM, BLOCK_N, BLOCK_D, True,
        )  # fmt: skip
    acc, l, m = _walk(
        acc, l, m, query, k, v, table, kv_block, kv_slot, shift + rows, whole_begin, whole_end, k_len,
        window, scale, BLOCK_SIZE, DIM, BLOCK_N, BLOCK_D, False,
    )  # fmt: skip
    acc, l, m = _walk(
        acc, l, m, query, k, v, table, kv_block, kv_slot, shift + rows, whole_end, end, k_len,
        window, scale, BLOCK_SIZE, DIM, BLOCK_N, BLOCK_D, True,
    )  # fmt: skip

    answer, sums = finish(acc, l, m)
    to = out + ((q_start + rows) * out_row + heads * out_head)[:, None] + dims[None, :]
    tl.store(to, answer.to(out.dtype.element_ty), mask=inside)
    if lse is not None:
        tl.store(lse + heads * lse_head + q_start + rows, sums, mask=real)


def flash_paged(
    out: torch.Tensor, q: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor, lse: torch.Tensor | None,
    block_table: torch.Tensor, seq_lens: torch.Tensor, cu_seqlens: torch.Tensor, max_query_len: int,
    window: int | None, section: int, shared: int, block_m: int, block_n: int, num_warps: int, num_stages: int,
    max_registers: int | None = None,
) -> None:  # fmt: skip
    """Write the causal attention of packed q `[T, Hq, D]` over paged keys into `out` `[T, Hq, D]`.

    k_cache, v_cache `[num_blocks, block_size, Hkv, D]` by equal strides, block_table `[B, max_blocks]`, seq_lens
    `[B]` and cu_seqlens `[B + 1]` int32; lse `[Hq, T]` float32 or None. The last stride of each is 1. shared: query
    heads of a KV head that share a tile; section: how many such groups `place` takes together; max_registers: of a
    thread, so that more programs fit a multiprocessor.
    """
    (_, q_heads, dim), (_, block_size, kv_heads, _) = q.shape, k_cache.shape
    tiles, units = triton.cdiv(max_query_len, block_m // shared), len(seq_lens) * (q_heads // shared)
    _flash_paged[(tiles * units,)](
        q, k_cache, v_cache, out, lse, cu_seqlens, seq_lens, block_table, window,
        math.log2(math.e) / math.sqrt(dim), tiles, units, section, q.stride(1), q.stride(0), *k_cache.stride()[:3],
        out.stride(1), out.stride(0), 0 if lse is None else lse.stride(0),
        block_table.stride(0), Q_HEADS=q_heads, GROUP=q_heads // kv_heads, SHARED=shared, BLOCK_SIZE=block_size,
        DIM=dim, BLOCK_D=max(16, triton.next_power_of_2(dim)), BLOCK_M=block_m, BLOCK_N=block_n, num_warps=num_warps,
        num_stages=num_stages, **({} if max_registers is None else {"maxnreg": max_registers}),
    )  # fmt: skip
