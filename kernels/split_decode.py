"""Split-KV decode: the keys of one sequence are shared out to several programs, and their answers merged.

With few sequences there are fewer (sequence, KV head) pairs than the GPU has places for programs. So the keys are cut
into `splits` ranges; a program answers for its range with o_i = softmax-weighted values and e_i = log-sum-exp of the
scores, and a second kernel merges, as if one program had seen all keys:

    e = log sum_i exp(e_i)        o = sum_i exp(e_i - e) o_i        (here with 2^x and log2)

Dao et al., "Flash-Decoding for long-context inference", 2023.

`splits` is fixed when the kernel is launched, so a captured CUDA graph can hold it; a program finds its range from
seq_lens on the device. A range has at least BLOCK_N keys, so a short sequence uses fewer programs than it is given;
the others have no keys, store e_i = -inf and weigh nothing. In a short sequence ranges are BLOCK_N keys, so a program
knows its first key, and asks for its pages, before it has read how long the sequence is: where microseconds are all
there is, one wait for memory less. A longer sequence shows the guess wrong, and the pages are read anew.

Two launches cost two waits: for the start, and for the last program of the kernel before. With OVERLAP both kernels are
programmatic dependent launches (NVIDIA, CUDA C++ Programming Guide, "Programmatic dependent launch and
synchronization"): they start while the kernel before them still runs, and wait on the device. What keeps them right
among any neighbours:

    each waits (`gdc_wait`) before its first read and write, until the kernel before it has ended and its stores are
    visible; what came before that one has ended too, since plain launches wait for it and those here wait in turn
    only the first kernel lets its successor start early (`gdc_launch_dependents`), and that is always the merge

Cost: what paged decode moves and, for each query head and range, D + 1 floats written and read: 1 / 64 of the keys
and values for 4 query heads and ranges of 512 keys in 16 bits. Invariant: no range is empty before one that is not;
what a program of no keys leaves in `partial` is not used, and no table entry past a length is followed.
It loses where sequences alone fill the GPU: a launch and the partial answers for nothing. Without OVERLAP (below
capability 9.0) the second launch is a large part of a short decode: see split_decode_once.py.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from .paged_decode import VARYING, attend_keys, load_group, pages_of, store_group, visible

GRAIN = tl.constexpr(16)  # ranges are multiples of this, so that programs seldom share a page
SLICE = 32  # elements of head_dim that a merging program takes


@triton.jit
def share(first, last, splits, BLOCK_N: tl.constexpr):
    """Cut the keys first .. last - 1 into ranges: `(keys a range, ranges that have keys, at least 1)`."""
    size = tl.maximum(tl.cdiv(tl.cdiv(last - first, splits), GRAIN) * GRAIN, BLOCK_N)
    return size, tl.maximum(tl.cdiv(last - first, size), 1)


@triton.jit
def guess_pages(table, split, room, BLOCK_SIZE: tl.constexpr, BLOCK_N: tl.constexpr):
    """The pages of the first tile of range `split` if ranges are BLOCK_N keys; room: keys for which the row has
    entries, of which those past the sequence's length may be anything."""
    return pages_of(table, split * BLOCK_N + tl.arange(0, BLOCK_N), room, BLOCK_SIZE)


@triton.jit
def settle_pages(guess, table, split, first, last, BLOCK_SIZE: tl.constexpr, BLOCK_N: tl.constexpr):
    """`pages_of` the tile that starts at key first: the guess where it was right, and else read now."""
    n = first + tl.arange(0, BLOCK_N)
    right = first == split * BLOCK_N
    page = tl.load(table + n // BLOCK_SIZE, mask=(n < last) & (first != split * BLOCK_N), other=0)
    return tl.where((n < last) & right, guess, page)


@triton.jit
def store_partial(partial, lse, acc, m, l, GROUP: tl.constexpr, HEAD_DIM: tl.constexpr):
    """One range's answer `[GROUP, HEAD_DIM]` and log-sum-exp `[GROUP]` in units of log 2, both float32."""
    g = tl.arange(0, acc.shape[0])
    some = l > 0
    l = tl.where(some, l, 1.0)
    store_group(partial, HEAD_DIM, acc / l[:, None], GROUP, HEAD_DIM)
    tl.store(lse + g, tl.where(some, m + tl.log2(l), float("-inf")), mask=g < GROUP)


@triton.jit(do_not_specialize=[*VARYING, "room"])
def _partial(
    partial, lse, q, k_cache, v_cache, block_table, seq_lens, scale, window, room,
    q_seq, q_head, table_row, kv_block, kv_slot, kv_head,
    GROUP: tl.constexpr, ROWS: tl.constexpr, BLOCK_SIZE: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr,
    BLOCK_N: tl.constexpr, OVERLAP: tl.constexpr,
):  # fmt: skip
    if OVERLAP:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    head, split, sequence = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.program_id(2).to(tl.int64)
    splits = tl.num_programs(1)
    table = block_table + sequence * table_row
    guess = guess_pages(table, split, room, BLOCK_SIZE, BLOCK_N)
    first, last = visible(seq_lens, sequence, window)
    size, _ = share(first, last, splits, BLOCK_N)
    first += split * size
    last = tl.minimum(first + size, last)
    page = settle_pages(guess, table, split, first, last, BLOCK_SIZE, BLOCK_N)
    rows = load_group(q + sequence * q_seq + head * GROUP * q_head, q_head, GROUP, ROWS, HEAD_DIM, BLOCK_D)
    acc, m, l = attend_keys(
        rows, k_cache + head * kv_head, v_cache + head * kv_head, table, page, first, last, scale, kv_block, kv_slot,
        BLOCK_SIZE, HEAD_DIM, BLOCK_N,
    )  # fmt: skip
    at = ((sequence * tl.num_programs(0) + head) * splits + split) * GROUP
    store_partial(partial + at * HEAD_DIM, lse + at, acc, m, l, GROUP, HEAD_DIM)


@triton.jit(do_not_specialize=["splits"])
def _merge(
    out, partial, lse, out_seq, out_head, splits,
    GROUP: tl.constexpr, HEAD_DIM: tl.constexpr, SLICE: tl.constexpr, RANGES: tl.constexpr, OVERLAP: tl.constexpr,
):  # fmt: skip
    """SLICE elements of one query head over all its ranges, of which there are at most RANGES."""
    if OVERLAP:
        tl.extra.cuda.gdc_wait()
    head, sequence = tl.program_id(0).to(tl.int64), tl.program_id(2).to(tl.int64)
    pair = sequence * (tl.num_programs(0) // GROUP) + head // GROUP
    s, d = tl.arange(0, RANGES), tl.program_id(1) * SLICE + tl.arange(0, SLICE)
    at = (pair * splits + s) * GROUP + head % GROUP
    e = tl.load(lse + at, mask=s < splits, other=float("-inf"))
    inside = (s < splits)[:, None] & (d < HEAD_DIM)[None, :]
    o = tl.load(partial + at[:, None] * HEAD_DIM + d[None, :], mask=inside, other=0.0)
    top = tl.max(e, 0)
    weight = tl.exp2(e - tl.where(top == float("-inf"), 0.0, top))
    l = tl.sum(weight, 0)
    answer = tl.sum(tl.where((weight > 0)[:, None], o * weight[:, None], 0.0), 0) / tl.where(l > 0, l, 1.0)
    tl.store(out + sequence * out_seq + head * out_head + d, answer.to(out.dtype.element_ty), mask=d < HEAD_DIM)


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
    overlap: bool = False,
) -> None:
    """Launch both kernels: tensors as for `paged_decode`, and room for partial `[B, Hkv, splits, G, D]` and lse
    `[B, Hkv, splits, G]`, both float32 and contiguous; overlap needs compute capability 9.0. Checks nothing: see
    `labllm.attention.paged`.
    """
    (batch, q_heads, dim), (_, block_size, kv_heads, _) = q.shape, k_cache.shape
    group, splits = q_heads // kv_heads, lse.shape[2]
    launch = {"launch_pdl": True} if overlap else {}
    part = min(SLICE, triton.next_power_of_2(dim))
    _partial[(kv_heads, splits, batch)](
        partial, lse, q, k_cache, v_cache, block_table, seq_lens, scale, window, block_table.shape[1] * block_size,
        *q.stride()[:2], block_table.stride(0), *k_cache.stride()[:3],
        GROUP=group, ROWS=max(16, triton.next_power_of_2(group)), BLOCK_SIZE=block_size, HEAD_DIM=dim,
        BLOCK_D=max(16, triton.next_power_of_2(dim)), BLOCK_N=block_n, OVERLAP=overlap, num_warps=num_warps,
        num_stages=num_stages, **launch,
    )  # fmt: skip
    _merge[(q_heads, triton.cdiv(dim, part), batch)](
        out, partial, lse, *out.stride()[:2], splits, GROUP=group, HEAD_DIM=dim, SLICE=part,
        RANGES=triton.next_power_of_2(splits), OVERLAP=overlap, num_warps=4, **launch,
    )  # fmt: skip
