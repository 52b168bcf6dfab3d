"""Split-KV decode in one launch: whoever finishes a sequence's last range merges all of them.

As split_decode.py, but no second kernel: a program stores its partial answer, then adds one to a counter of its
(sequence, KV head). The one that finds itself the last to arrive knows that all answers are there, merges them while
they are in L2 and sets the counter back to zero for the next launch. A launch less counts where the whole work takes
microseconds; and a sequence is merged while others are still being read, not after all of them.

The addition releases what its program wrote and acquires what the others released (`acq_rel`); the barrier before it
makes it speak for all threads of the program. A sequence of one range is stored at once and takes no part.

Cost: as split_decode.py, and one atomic a program. Invariant: all counters are zero between launches, so a graph can
be replayed; therefore two launches that share counters must not overlap. It loses to two launches of which the second
starts early (split_decode.py), and the more so the more ranges there are: the last program merges alone what many
could share, and what it reads has to be made visible first.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from .paged_decode import VARYING, attend_keys, load_group, pages_of, store_group, visible
from .split_decode import share, store_partial

MERGE_ELEMENTS = 8192  # of partial answers that a program holds at a time


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


@triton.jit(do_not_specialize=VARYING)
def _split_decode_once(
    out, partial, lse, arrivals, q, k_cache, v_cache, block_table, seq_lens, scale, window,
    out_seq, out_head, q_seq, q_head, table_row, kv_block, kv_slot, kv_head,
    GROUP: tl.constexpr, ROWS: tl.constexpr, BLOCK_SIZE: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr,
    BLOCK_N: tl.constexpr, MERGE_ROWS: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    head, split, sequence = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.program_id(2).to(tl.int64)
    splits = tl.num_programs(1)
    first, last = visible(seq_lens, sequence, window)
    size, used = share(first, last, splits, BLOCK_N)
    if split >= used:
        return
    first += split * size
    last = tl.minimum(first + size, last)
    table = block_table + sequence * table_row
    page = pages_of(table, first + tl.arange(0, BLOCK_N), last, BLOCK_SIZE)
    rows = load_group(q + sequence * q_seq + head * GROUP * q_head, q_head, GROUP, ROWS, HEAD_DIM, BLOCK_D)
    acc, m, l = attend_keys(
        rows, k_cache + head * kv_head, v_cache + head * kv_head, table, page, first, last, scale, kv_block, kv_slot,
        BLOCK_SIZE, HEAD_DIM, BLOCK_N,
    )  # fmt: skip
    out += sequence * out_seq + head * GROUP * out_head
    if used == 1:
        store_group(out, out_head, acc / tl.where(l > 0, l, 1.0)[:, None], GROUP, HEAD_DIM)
        return
    pair = sequence * tl.num_programs(0) + head
    at = pair * splits * GROUP
    mine = at + split * GROUP
    store_partial(partial + mine * HEAD_DIM, lse + mine, acc, m, l, GROUP, HEAD_DIM)
    tl.debug_barrier()
    if tl.atomic_add(arrivals + pair, 1, sem="acq_rel") == used - 1:
        merged = merge(partial + at * HEAD_DIM, lse + at, used, GROUP, MERGE_ROWS, HEAD_DIM, BLOCK_D, CHUNK)
        store_group(out, out_head, merged, GROUP, HEAD_DIM)
        tl.store(arrivals + pair, 0)


def merge_shape(group: int, dim: int) -> dict[str, int]:
    """Tile sizes of `merge` for `group` query heads a KV head: ROWS, BLOCK_D and the ranges taken at a time."""
    rows, columns = triton.next_power_of_2(group), max(16, triton.next_power_of_2(dim))
    return {"ROWS": rows, "BLOCK_D": columns, "CHUNK": max(1, MERGE_ELEMENTS // (rows * columns))}


def split_decode_once(
    out: torch.Tensor,
    partial: torch.Tensor,
    lse: torch.Tensor,
    arrivals: torch.Tensor,
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
    """Launch: tensors as for `split_decode`, and arrivals `[B, Hkv]` int32, zero before and after. Checks nothing: see
    `labllm.attention.paged`.
    """
    (batch, q_heads, dim), (_, block_size, kv_heads, _) = q.shape, k_cache.shape
    group, splits = q_heads // kv_heads, lse.shape[2]
    shape = merge_shape(group, dim)
    _split_decode_once[(kv_heads, splits, batch)](
        out, partial, lse, arrivals, q, k_cache, v_cache, block_table, seq_lens, scale, window,
        *out.stride()[:2], *q.stride()[:2], block_table.stride(0), *k_cache.stride()[:3],
        GROUP=group, ROWS=max(16, triton.next_power_of_2(group)), BLOCK_SIZE=block_size, HEAD_DIM=dim,
        BLOCK_D=max(16, triton.next_power_of_2(dim)), BLOCK_N=block_n, MERGE_ROWS=shape["ROWS"], CHUNK=shape["CHUNK"],
        num_warps=num_warps, num_stages=num_stages,
    )  # fmt: skip
