"""Flash attention: the scores live in registers, a tile at a time, and never visit memory.

A program owns BLOCK_M queries of one head and walks their keys in tiles of BLOCK_N. It keeps, for each query, the
largest score so far `m`, the sum of exponentials `l` and the weighted values `acc`; a larger score rescales both:

    m' = max(m, max_j s_j)    l' = l 2^(m - m') + sum_j 2^(s_j - m')    acc' = acc 2^(m - m') + sum_j 2^(s_j - m') v_j

Milakov & Gimelshein, "Online normalizer calculation for softmax", 2018; Dao et al., "FlashAttention", 2022. Scores are
taken in units of log 2 (one multiplication by log2(e) / sqrt(D), fused with the subtraction), because the GPU's
exponential is 2^x.

Cost: 4 D FLOPs and one exponential a query, head and visible key; q and out once through memory, k and v once for
every BLOCK_M queries, which L2 absorbs (see `place`). Tiles that every query sees whole run without a mask, and tiles
that none sees are not visited: half of all under a causal mask. A larger BLOCK_M means fewer reads of k and v, but
acc (BLOCK_M D floats) must stay in registers; BLOCK_N sets what is in flight in shared memory. Head dims between powers
of two are computed as the next one.
Invariant: a query that sees no key gets zeros and a log-sum-exp of -inf, never NaN.
It loses on one query a sequence (BLOCK_M rows for one: see split-KV decode) and on sequences shorter than a tile.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl

LN_2 = tl.constexpr(0.6931471805599453)
FLOOR = tl.constexpr(-1.0e38)  # where a running maximum starts: finite, so that (-inf) - FLOOR is -inf and no NaN


@triton.jit
def place(tiles, heads, section):
    """Which tile of which (sequence, head) this program computes: `(tile, head)`.

    Heads are taken `section` at a time, as many as have their keys and values in L2 together, and within a section the
    last tiles come first: under a causal mask they are the longest, and the short ones fill the gaps at the end.
    """
    program = tl.program_id(0)
    first = program // (tiles * section) * section
    width = tl.minimum(section, heads - first)
    within = program - first * tiles
    return tiles - 1 - within // width, first + within % width


@triton.jit
def extent(m0, shift, k_len, window, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, CAUSAL: tl.constexpr):
    """Where the keys of queries m0 .. m0 + BLOCK_M begin and end, and between them the whole tiles that all see.

    Returns `(begin, whole_begin, whole_end, end)`; query i stands at position shift + i; window None means no window.
    """
    end = k_len
    whole_end = k_len
    if CAUSAL:
        end = tl.minimum(k_len, shift + m0 + BLOCK_M)
        whole_end = tl.minimum(k_len, shift + m0 + 1)
    end = tl.maximum(end, 0)
    begin = 0
    whole_begin = 0
    if window is not None:
        begin = tl.maximum(shift + m0 - window + 1, 0) // BLOCK_N * BLOCK_N
        whole_begin = tl.cdiv(tl.maximum(shift + m0 + BLOCK_M - window, 0), BLOCK_N) * BLOCK_N
        whole_begin = tl.minimum(whole_begin, tl.cdiv(end, BLOCK_N) * BLOCK_N)
    whole_end = tl.maximum(whole_end, 0) // BLOCK_N * BLOCK_N
    return begin, whole_begin, tl.maximum(whole_end, whole_begin), end


@triton.jit
def load_tile(
    base, row, start, limit, DIM: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr, BOUNDED: tl.constexpr
):
    """Rows start .. start + BLOCK_N of a matrix `[limit, DIM]` at `base`, zeros beyond it: `[BLOCK_N, BLOCK_D]`."""
    rows, dims = tl.arange(0, BLOCK_N), tl.arange(0, BLOCK_D)
    at = base + tl.cast(start, tl.int64) * row + (rows[:, None] * row + dims[None, :])
    if BOUNDED:
        return tl.load(at, mask=(start + rows < limit)[:, None] & (dims < DIM)[None, :], other=0.0)
    if DIM < BLOCK_D:
        return tl.load(at, mask=(dims < DIM)[None, :], other=0.0)
    return tl.load(at)


@triton.jit
def hide(scores, positions, keys, k_len, window, CAUSAL: tl.constexpr):
    """Scores `[BLOCK_M, BLOCK_N]` with -inf where the query at `positions` may not see the key at `keys`."""
    seen = keys[None, :] < k_len
    if CAUSAL:
        seen = seen & (keys[None, :] <= positions[:, None])
    if window is not None:
        seen = seen & (keys[None, :] > positions[:, None] - window)
    return tl.where(seen, scores, float("-inf"))


@triton.jit
def update(acc, l, m, scores, v, scale):
    """One step of the online softmax: scores `[BLOCK_M, BLOCK_N]`, v `[BLOCK_N, BLOCK_D]`, scale log2(e) / sqrt(D)."""
    m_new = tl.maximum(m, tl.max(scores, 1) * scale)
    p = tl.exp2(scores * scale - m_new[:, None])
    alpha = tl.exp2(m - m_new)
    l = l * alpha + tl.sum(p, 1)
    acc = tl.dot(p.to(v.dtype), v, acc * alpha[:, None], input_precision="ieee")
    return acc, l, m_new


@triton.jit
def finish(acc, l, m):
    """The output `[BLOCK_M, BLOCK_D]` and its log-sum-exp `[BLOCK_M]`: zeros and -inf where no key was seen."""
    some = l > 0
    l = tl.where(some, l, 1.0)
    return acc / l[:, None], tl.where(some, m * LN_2 + tl.log(l), float("-inf"))


@triton.jit
def _walk(
    acc, l, m, q, k, v, k_row, v_row, positions, begin, end, k_len, window, scale,
    DIM: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr, CAUSAL: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    for start in range(begin, end, BLOCK_N):
        k_tile = load_tile(k, k_row, start, k_len, DIM, BLOCK_N, BLOCK_D, MASKED)
        scores = tl.dot(q, tl.trans(k_tile), input_precision="ieee")
        if MASKED:
            scores = hide(scores, positions, start + tl.arange(0, BLOCK_N), k_len, window, CAUSAL)
        v_tile = load_tile(v, v_row, start, k_len, DIM, BLOCK_N, BLOCK_D, MASKED)
        acc, l, m = update(acc, l, m, scores, v_tile, scale)
    return acc, l, m


@triton.jit(do_not_specialize=["q_len", "k_len", "window", "tiles", "heads", "section"])
def _flash(
    q, k, v, out, lse, q_starts, k_starts, q_len, k_len, window, scale, tiles, heads, section,
    q_batch, q_head, q_row, k_batch, k_head, k_row, v_batch, v_head, v_row, out_batch, out_head, out_row, lse_batch,
    lse_head, Q_HEADS: tl.constexpr, GROUP: tl.constexpr, DIM: tl.constexpr, BLOCK_D: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    """One tile of queries of one head, `GROUP` of which read one KV head; grid (tiles * heads,), heads over the batch.

    Strides are in elements and the last dimension's is 1. Sequences lie `*_batch` apart, or, packed, start at
    `q_starts`, `k_starts` `[B + 1]` (else None) and q_len, k_len are not read. window and lse may be None.
    """
    tile, head = place(tiles, heads, section)
    b, h = (head // Q_HEADS).to(tl.int64), (head % Q_HEADS).to(tl.int64)
    m0 = tile * BLOCK_M
    if q_starts is not None:
        q_start, k_start = tl.load(q_starts + b).to(tl.int64), tl.load(k_starts + b).to(tl.int64)
        q_len = (tl.load(q_starts + b + 1) - q_start).to(tl.int32)
        k_len = (tl.load(k_starts + b + 1) - k_start).to(tl.int32)
        if m0 >= q_len:
            return
        q += q_start * q_row
        k += k_start * k_row
        v += k_start * v_row
        out += q_start * out_row
        if lse is not None:
            lse += q_start
    k += b * k_batch + h // GROUP * k_head
    v += b * v_batch + h // GROUP * v_head
    query = load_tile(q + b * q_batch + h * q_head, q_row, m0, q_len, DIM, BLOCK_M, BLOCK_D, True)
    rows, dims = m0 + tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_D)
    shift = k_len - q_len

    acc = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)
    l = tl.zeros([BLOCK_M], tl.float32)
    m = tl.full([BLOCK_M], FLOOR, tl.float32)
    begin, whole_begin, whole_end, end = extent(m0, shift, k_len, window, BLOCK_M, BLOCK_N, CAUSAL)
    if window is not None:
        acc, l, m = _walk(
            acc, l, m, query, k, v, k_row, v_row, shift + rows, begin, whole_begin, k_len, window, scale,
            DIM, BLOCK_N, BLOCK_D, CAUSAL, True,
        )  # fmt: skip
    acc, l, m = _walk(
        acc, l, m, query, k, v, k_row, v_row, shift + rows, whole_begin, whole_end, k_len, window, scale,
        DIM, BLOCK_N, BLOCK_D, CAUSAL, False,
    )  # fmt: skip
    acc, l, m = _walk(
        acc, l, m, query, k, v, k_row, v_row, shift + rows, whole_end, end, k_len, window, scale,
        DIM, BLOCK_N, BLOCK_D, CAUSAL, True,
    )  # fmt: skip

    answer, sums = finish(acc, l, m)
    to = out + b * out_batch + h * out_head + rows.to(tl.int64)[:, None] * out_row + dims[None, :]
    tl.store(to, answer.to(out.dtype.element_ty), mask=(rows < q_len)[:, None] & (dims < DIM)[None, :])
    if lse is not None:
        tl.store(lse + b * lse_batch + h * lse_head + rows, sums, mask=rows < q_len)


def flash(
    out: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, lse: torch.Tensor | None,
    starts: tuple[torch.Tensor, torch.Tensor] | None, max_query_len: int, causal: bool, window: int | None,
    section: int, block_m: int, block_n: int, num_warps: int, num_stages: int,
) -> None:  # fmt: skip
    """Write the attention of q over k, v into `out`, and its natural log-sum-exp into `lse` where one is given.

    Dense (starts None): q, out `[B, Hq, Tq, D]`, k, v `[B, Hkv, Tk, D]`, lse `[B, Hq, Tq]` float32. Packed: q, out
    `[T, Hq, D]`, k, v `[Tk, Hkv, D]`, lse `[Hq, T]`, and starts are cu_seqlens `[B + 1]` of queries and of keys, int32.
    The last stride of each is 1. section: heads that `place` takes together.
    """
    if starts is None:
        batch, q_heads, q_len, dim = q.shape
        kv_heads, k_len = k.shape[1:3]
        strides = [n for x in (q, k, v, out) for n in x.stride()[:3]]
        lse_strides = (0, 0) if lse is None else lse.stride()[:2]
    else:
        (_, q_heads, dim), kv_heads, batch = q.shape, k.shape[1], len(starts[0]) - 1
        q_len = k_len = 0
        strides = [n for x in (q, k, v, out) for n in (0, x.stride(1), x.stride(0))]
        lse_strides = (0, 0 if lse is None else lse.stride(0))
    tiles, heads = triton.cdiv(max_query_len, block_m), batch * q_heads
    _flash[(tiles * heads,)](
        q, k, v, out, lse, *(starts or (None, None)), q_len, k_len, window, math.log2(math.e) / math.sqrt(dim), tiles,
        heads, section, *strides, *lse_strides, Q_HEADS=q_heads, GROUP=q_heads // kv_heads, DIM=dim,
        BLOCK_D=max(16, triton.next_power_of_2(dim)), BLOCK_M=block_m, BLOCK_N=block_n, CAUSAL=causal,
        num_warps=num_warps, num_stages=num_stages,
    )  # fmt: skip
