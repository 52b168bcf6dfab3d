"""Split-KV decode: the keys of one sequence are shared out to several programs, and their answers merged.

With few sequences there are fewer (sequence, KV head) pairs than the GPU has places for programs. So the keys are cut
into `splits` ranges; a program answers for its range with o_i = softmax-weighted values and e_i = log-sum-exp of the
scores, and a second kernel merges, as if one program had seen all keys:

    e = log sum_i exp(e_i)        o = sum_i exp(e_i - e) o_i        (here with 2^x and log2)

Dao et al., "Flash-Decoding for long-context inference", 2023.

`splits` is fixed when the kernel is launched, so a captured CUDA graph can hold it; a program finds its range from
seq_lens on the device. A range has at least BLOCK_N keys, so a short sequence uses fewer programs than it is given;
the others have no keys, store e_i = -inf and weigh nothing.

Cost: what paged decode moves and, for each query head and range, D + 1 floats written and read: 1 / 64 of the keys
and values for 4 query heads and ranges of 512 keys in 16 bits. Invariant: no range is empty before one that is not;
what a program of no keys leaves in `partial` is not used.
It loses where sequences alone fill the GPU: a launch and the partial answers for nothing. And where a few microseconds
are all there is, the second launch is a large part: see split_decode_once.py.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from .paged_decode import attend_keys, load_group, store_group, visible

GRAIN = tl.constexpr(16)  # ranges are multiples of this, so that programs seldom share a page
MERGE_ELEMENTS = 8192  # of partial answers that a program holds at a time


@triton.jit
def share(first, last, splits, BLOCK_N: tl.constexpr):
    """Cut the keys first .. last - 1 into ranges: `(keys a range, ranges that have keys, at least 1)`."""
    size = tl.maximum(tl.cdiv(tl.cdiv(last - first, splits), GRAIN) * GRAIN, BLOCK_N)
    return size, tl.maximum(tl.cdiv(last - first, size), 1)


@triton.jit
def store_partial(partial, lse, acc, m, l, GROUP: tl.constexpr, HEAD_DIM: tl.constexpr):
    """One range's answer `[GROUP, HEAD_DIM]` and log-sum-exp `[GROUP]` in units of log 2, both float32."""
    g = tl.arange(0, acc.shape[0])
    some = l > 0
    l = tl.where(some, l, 1.0)
    store_group(partial, HEAD_DIM, acc / l[:, None], GROUP, HEAD_DIM)
    tl.store(lse + g, tl.where(some, m + tl.log2(l), float("-inf")), mask=g < GROUP)


@triton.jit
def merge(
    partial, lse, splits, GROUP: tl.constexpr, ROWS: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr,
    CHUNK: tl.constexpr,
):  # fmt: skip
    """Merge partial `[splits, GROUP, HEAD_DIM]` by lse `[splits, GROUP]`, CHUNK ranges at a time: `[ROWS, BLOCK_D]`."""
    g, d = tl.arange(0, ROWS), tl.arange(0, BLOCK_D)
    m = tl.full([ROWS], float("-inf"), tl.float32)
    l = tl.zeros([ROWS], tl.float32)
    acc = tl.zeros([ROWS, BLOCK_D], tl.float32)
    for start in range(0, splits, CHUNK):
        s = start + tl.arange(0, CHUNK)
        at = s[:, None] * GROUP + g[None, :]
        inside = (s < splits)[:, None] & (g < GROUP)[None, :]
        e = tl.load(lse + at, mask=inside, other=float("-inf"), cache_modifier=".cg")
        o = tl.load(
            partial + at[:, :, None] * HEAD_DIM + d[None, None, :],
            mask=inside[:, :, None] & (d < HEAD_DIM)[None, None, :], other=0.0, cache_modifier=".cg",
        )  # fmt: skip
        m_new = tl.maximum(m, tl.max(e, 0))
        top = tl.where(m_new == float("-inf"), 0.0, m_new)
        weight, keep = tl.exp2(e - top[None, :]), tl.exp2(m - top)
        l = l * keep + tl.sum(weight, 0)
        o = tl.where((weight > 0)[:, :, None], o * weight[:, :, None], 0.0)
        acc = acc * keep[:, None] + tl.sum(o, 0)
        m = m_new
    return acc / tl.where(l > 0, l, 1.0)[:, None]


@triton.jit
def _partial(
    partial, lse, q, k_cache, v_cache, block_table, seq_lens, scale, window,
    q_seq, q_head, table_row, kv_block, kv_slot, kv_head,
    GROUP: tl.constexpr, ROWS: tl.constexpr, BLOCK_SIZE: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr,
    BLOCK_N: tl.constexpr,
):  # fmt: skip
    head, split, sequence = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.program_id(2).to(tl.int64)
    splits = tl.num_programs(1)
    first, last = visible(seq_lens, sequence, window)
    size, _ = share(first, last, splits, BLOCK_N)
    first += split * size
    last = tl.minimum(first + size, last)
    rows = load_group(q + sequence * q_seq + head * GROUP * q_head, q_head, GROUP, ROWS, HEAD_DIM, BLOCK_D)
    acc, m, l = attend_keys(
        rows, k_cache + head * kv_head, v_cache + head * kv_head, block_table + sequence * table_row, first, last,
        scale, kv_block, kv_slot, BLOCK_SIZE, HEAD_DIM, BLOCK_N,
    )  # fmt: skip
    at = ((sequence * tl.num_programs(0) + head) * splits + split) * GROUP
    store_partial(partial + at * HEAD_DIM, lse + at, acc, m, l, GROUP, HEAD_DIM)


@triton.jit(do_not_specialize=["splits"])
def _merge(
    out, partial, lse, out_seq, out_head, splits,
    GROUP: tl.constexpr, ROWS: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    head, sequence = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    at = (sequence * tl.num_programs(0) + head) * splits * GROUP
    rows = merge(partial + at * HEAD_DIM, lse + at, splits, GROUP, ROWS, HEAD_DIM, BLOCK_D, CHUNK)
    store_group(out + sequence * out_seq + head * GROUP * out_head, out_head, rows, GROUP, HEAD_DIM)


def merge_shape(group: int, dim: int) -> dict[str, int]:
    """Tile sizes of `merge` for `group` query heads a KV head: ROWS, BLOCK_D and the ranges taken at a time."""
    rows, columns = triton.next_power_of_2(group), max(16, triton.next_power_of_2(dim))
    return {"ROWS": rows, "BLOCK_D": columns, "CHUNK": max(1, MERGE_ELEMENTS // (rows * columns))}


def split_decode(
    out: torch.Tensor,
    partial: torch.Tensor,
    lse: torch.Tensor,
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
    """Launch both kernels: tensors as for `paged_decode`, and room for partial `[B, Hkv, splits, G, D]` and lse
    `[B, Hkv, splits, G]`, both float32 and contiguous. Checks nothing: see `labllm.attention.paged`.
    """
    (batch, q_heads, dim), (_, block_size, kv_heads, _) = q.shape, k_cache.shape
    group, splits = q_heads // kv_heads, lse.shape[2]
    _partial[(kv_heads, splits, batch)](
        partial, lse, q, k_cache, v_cache, block_table, seq_lens, scale, window,
        *q.stride()[:2], block_table.stride(0), *k_cache.stride()[:3],
        GROUP=group, ROWS=max(16, triton.next_power_of_2(group)), BLOCK_SIZE=block_size, HEAD_DIM=dim,
        BLOCK_D=max(16, triton.next_power_of_2(dim)), BLOCK_N=block_n, num_warps=num_warps, num_stages=num_stages,
    )  # fmt: skip
    _merge[(kv_heads, batch)](
        out, partial, lse, *out.stride()[:2], splits, GROUP=group, HEAD_DIM=dim, **merge_shape(group, dim), num_warps=4
    )
