"""Paged decode attention: one query a sequence, its keys and values read in place through a block table.

A program owns one sequence and one KV head. The G query heads that share the head are rows of one small matrix, so
each key is read once for all of them, and tensor cores (which want 16 rows) do the products that a memory-bound
kernel has no time for otherwise. Keys come in tiles of BLOCK_N with the online softmax of flash attention (see
flash.py):

    m' = max(m, max_j s_j)    l' = l 2^(m - m') + sum_j 2^(s_j - m')    acc' = acc 2^(m - m') + sum_j 2^(s_j - m') v_j

Paging costs one look-up a token, page = table[n // BLOCK_SIZE], so the tile need not know the page: any BLOCK_SIZE
works with any BLOCK_N, and a row of D elements is still one contiguous read. What would hurt is waiting for a page
number before each load, so the numbers of the next tile are fetched while this one is computed. Kwon et al.,
"Efficient memory management for LLM serving with PagedAttention", 2023.

Cost: 2 L Hkv D elements a sequence, whatever its q heads; 4 L Hq D FLOPs, G FLOPs a byte in 16 bits: memory-bound
everywhere. Memory answers after about a microsecond, so tens of kilobytes must be on the way in every multiprocessor:
BLOCK_N (K and V tiles of 16 KB each) times the stages of the pipeline is that, and it is bounded by shared memory.
Invariant: the table is read only for keys below seq_lens; a sequence of no keys gives zeros, never NaN.
It loses when sequences times KV heads are fewer than the programs that fill the GPU, and when one sequence is much
longer than the others: see split_decode.py. The queries of a padded tile are wasted, which nobody notices here.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

VARYING = ["block_table", "seq_lens", "table_row"]  # from step to step: they compile nothing anew


@triton.jit
def load_group(q, q_head, GROUP: tl.constexpr, ROWS: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr):
    """The query heads of one KV head, q pointing at the first: `[ROWS, BLOCK_D]`, zeros beyond `[GROUP, HEAD_DIM]`."""
    g, d = tl.arange(0, ROWS), tl.arange(0, BLOCK_D)
    inside = (g < GROUP)[:, None] & (d < HEAD_DIM)[None, :]
    return tl.load(q + g[:, None] * q_head + d[None, :], mask=inside, other=0.0)


@triton.jit
def store_group(out, out_head, rows, GROUP: tl.constexpr, HEAD_DIM: tl.constexpr):
    """Store `rows` as `load_group` loaded them, in the dtype of `out`."""
    g, d = tl.arange(0, rows.shape[0]), tl.arange(0, rows.shape[1])
    inside = (g < GROUP)[:, None] & (d < HEAD_DIM)[None, :]
    tl.store(out + g[:, None] * out_head + d[None, :], rows.to(out.dtype.element_ty), mask=inside)


@triton.jit
def visible(seq_lens, sequence, window):
    """The keys that the newest token of `sequence` sees: `(first, last)`, from first up to last - 1."""
    last = tl.load(seq_lens + sequence)
    first = 0
    if window is not None:
        first = tl.maximum(last - window, 0)
    return first, last


@triton.jit
def pages_of(table, n, last, BLOCK_SIZE: tl.constexpr):
    """The pages of the keys n that lie below last, 0 for the others; table points at the sequence's row."""
    return tl.load(table + n // BLOCK_SIZE, mask=n < last, other=0)


@triton.jit
def attend_keys(
    q, k_cache, v_cache, table, page, first, last, scale, kv_block, kv_slot,
    BLOCK_SIZE: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Online softmax of q `[ROWS, BLOCK_D]` over the keys first .. last - 1 of one sequence and KV head.

    k_cache and v_cache point at the KV head, table at the sequence's row, page `[BLOCK_N]` is the first tile's
    `pages_of`; scale is log2(e) / sqrt(D). Returns `(acc [ROWS, BLOCK_D], m [ROWS], l [ROWS])`: the answer is acc / l
    and its log-sum-exp, in units of log 2, m + log2(l). Over no keys acc and l are zero and m is -inf.
    """
    d = tl.arange(0, q.shape[1])
    m = tl.full([q.shape[0]], float("-inf"), tl.float32)
    l = tl.zeros([q.shape[0], BLOCK_N], tl.float32)  # a column a key of the tile, added up once at the end
    acc = tl.zeros(q.shape, tl.float32)
    for start in range(first, last, BLOCK_N):
        n = start + tl.arange(0, BLOCK_N)
        at = page.to(tl.int64) * kv_block + n % BLOCK_SIZE * kv_slot
        inside = (n < last)[:, None] & (d < HEAD_DIM)[None, :]
        k = tl.load(k_cache + at[:, None] + d[None, :], mask=inside, other=0.0)
        page = pages_of(table, n + BLOCK_N, last, BLOCK_SIZE)
        scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        scores = tl.where((n < last)[None, :], scores, float("-inf"))
        top = tl.maximum(m, tl.max(scores, 1))
        p = tl.exp2(scores - top[:, None])
        keep = tl.exp2(m - top)
        l = l * keep[:, None] + p
        v = tl.load(v_cache + at[:, None] + d[None, :], mask=inside, other=0.0)
        acc = tl.dot(p.to(v.dtype), v, acc * keep[:, None], input_precision="ieee")
        m = top
    return acc, m, tl.sum(l, 1)


@triton.jit(do_not_specialize=VARYING)
def _paged_decode(
    out, q, k_cache, v_cache, block_table, seq_lens, scale, window,
    out_seq, out_head, q_seq, q_head, table_row, kv_block, kv_slot, kv_head,
    GROUP: tl.constexpr, ROWS: tl.constexpr, BLOCK_SIZE: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr,
    BLOCK_N: tl.constexpr,
):  # fmt: skip
    head, sequence = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    first, last = visible(seq_lens, sequence, window)
    rows = load_group(q + sequence * q_seq + head * GROUP * q_head, q_head, GROUP, ROWS, HEAD_DIM, BLOCK_D)
    table = block_table + sequence * table_row
    page = pages_of(table, first + tl.arange(0, BLOCK_N), last, BLOCK_SIZE)
    acc, _, l = attend_keys(
        rows, k_cache + head * kv_head, v_cache + head * kv_head, table, page, first, last, scale, kv_block, kv_slot,
        BLOCK_SIZE, HEAD_DIM, BLOCK_N,
    )  # fmt: skip
    acc = acc / tl.where(l > 0, l, 1.0)[:, None]
    store_group(out + sequence * out_seq + head * GROUP * out_head, out_head, acc, GROUP, HEAD_DIM)


def paged_decode(
    out: torch.Tensor,
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    block_table: torch.Tensor,
    seq_lens: torch.Tensor,
    scale: float,
    window: int | None,
    block_n: int,
    num_warps: int,
    num_stages: int,
) -> None:
    """Launch: out and q `[B, Hq, D]`, caches `[num_blocks, block_size, Hkv, D]` by equal strides, last one 1;
    block_table `[B, max_blocks]` and seq_lens `[B]` int32; scale is log2(e) / sqrt(D). Checks nothing: see
    `labllm.attention.paged`.
    """
    (batch, q_heads, dim), (_, block_size, kv_heads, _) = q.shape, k_cache.shape
    group = q_heads // kv_heads
    _paged_decode[(kv_heads, batch)](
        out, q, k_cache, v_cache, block_table, seq_lens, scale, window,
        *out.stride()[:2], *q.stride()[:2], block_table.stride(0), *k_cache.stride()[:3],
        GROUP=group, ROWS=max(16, triton.next_power_of_2(group)), BLOCK_SIZE=block_size, HEAD_DIM=dim,
        BLOCK_D=max(16, triton.next_power_of_2(dim)), BLOCK_N=block_n, num_warps=num_warps, num_stages=num_stages,
    )  # fmt: skip
