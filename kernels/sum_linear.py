"""A product of one token that is summed over GPUs: each program sends its outputs to the others when it has them.

    _send_linear   y = x weight^T (+ bias, + residual, which one rank alone adds): kept here and sent to every peer
    _receive       the sum over ranks of what was sent, where all that has come

As an all-reduce of its own (one_shot.py) the sum begins when the whole product has ended. Here most of it has crossed
the link by then, and the second kernel, started early, only waits for the last words and adds. Slots and -0.0 for
'nothing has come' are those of one_shot.py, which says why a slot can be used again. A call's slot is read from the
counter of the `_receive` program that will add those outputs up; that program alone reads and fills them, and counts.

With OVERLAP both start early (early_start.py). Invariant: each weight is read once; all ranks add in the order of the
ranks and hold the same bits. It loses with more than a few tokens, as skinny_linear.py does.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from .early_start import begin, launch_options
from .one_shot import TL, arrived, nothing, sendable
from .skinny_linear import _tile

PIECE, PIECE_WARPS = 512, 4  # outputs that one program of `_receive` adds up


@triton.jit
def _send_linear(
    out, x, weight, bias, residual, peers, calls,
    N: tl.constexpr, K: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, PIECE: tl.constexpr,
    RANK: tl.constexpr, RANKS: tl.constexpr, CAPACITY: tl.constexpr, WORD: tl.constexpr, NOTHING: tl.constexpr,
    OVERLAP: tl.constexpr,
):  # fmt: skip
    """BLOCK_N outputs of x `[K]`; BLOCK_N divides PIECE."""
    n = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    inside, row = n < N, n.to(tl.int64)[:, None]
    k = tl.arange(0, BLOCK_K)[None, :]
    sums = tl.zeros([BLOCK_N, BLOCK_K], tl.float32)
    w = _tile(weight, row, k, inside[:, None] & (k < K), K)
    begin(OVERLAP)
    slot = (tl.load(calls + tl.program_id(0) * BLOCK_N // PIECE) % 3) * RANKS * CAPACITY
    for start in tl.range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)[None, :]
        ahead = k + BLOCK_K
        next_w = _tile(weight, row, ahead, inside[:, None] & (ahead < K), K)
        h = tl.load(x + k, mask=k < K, other=0.0).to(tl.float32)
        sums += w.to(tl.float32) * h
        w = next_w
    y = tl.sum(sums, axis=1)
    if bias is not None:
        y += tl.load(bias + n, mask=inside, other=0.0).to(tl.float32)
    if residual is not None:
        y += tl.load(residual + n, mask=inside, other=0.0).to(tl.float32)
    piece = sendable(y.to(out.dtype.element_ty).to(WORD, bitcast=True), NOTHING)
    for peer in tl.static_range(RANKS):
        if peer != RANK:
            there = tl.multiple_of(tl.load(peers + peer).to(tl.pointer_type(WORD)), 16)
            tl.store(there + slot + RANK * CAPACITY + n, piece, mask=inside)
    tl.store(out + n, piece.to(out.dtype.element_ty, bitcast=True), mask=inside)


@triton.jit
def _receive(
    total, mine, own, calls, n,
    RANK: tl.constexpr, RANKS: tl.constexpr, CAPACITY: tl.constexpr, PIECE: tl.constexpr, WORD: tl.constexpr,
    NOTHING: tl.constexpr, OVERLAP: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0)
    at = program * PIECE + tl.arange(0, PIECE)
    inside = at < n
    begin(OVERLAP)
    call = tl.load(calls + program)
    slot, before = (call % 3) * RANKS * CAPACITY, ((call + 2) % 3) * RANKS * CAPACITY
    sums = tl.zeros([PIECE], tl.float32)
    for peer in tl.static_range(RANKS):
        if peer == RANK:
            sums += tl.load(mine + at, mask=inside, other=0.0).to(tl.float32)
        else:
            came = arrived(own + slot + peer * CAPACITY + at, inside, NOTHING)
            sums += came.to(total.dtype.element_ty, bitcast=True).to(tl.float32)
    tl.store(total + at, sums.to(total.dtype.element_ty), mask=inside)
    for peer in tl.static_range(RANKS):
        if peer != RANK:
            tl.store(own + before + peer * CAPACITY + at, tl.full([PIECE], NOTHING, WORD))
    tl.store(calls + program, call + 1)


def sum_linear(
    total: torch.Tensor, mine: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None,
    residual: torch.Tensor | None, own: torch.Tensor, pointers: torch.Tensor, calls: torch.Tensor, rank: int,
    block_n: int, block_k: int, num_warps: int, overlap: bool,
) -> None:  # fmt: skip
    """Launch: total and mine `[1, N]`, x `[1, K]`, weight `[N, K]`, bias `[N]`, residual `[1, N]`, contiguous, of one
    dtype; own, this rank's slots, integers as wide `[3, ranks, P]`, P at least N and a multiple of PIECE, filled with
    `nothing` at first; pointers int64 `[ranks]`; calls int32 `[P / PIECE]`, zeros at first; powers of two block_n up to
    PIECE, and block_k. Checks nothing: see `labllm.parallel.sum_linear`.
    """
    (outputs, inputs), (_, ranks, capacity) = weight.shape, own.shape
    shared = {
        "PIECE": PIECE, "RANK": rank, "RANKS": ranks, "CAPACITY": capacity, "WORD": TL[own.dtype],
        "NOTHING": nothing(x.dtype), "OVERLAP": overlap, **launch_options(overlap),
    }  # fmt: skip
    _send_linear[(triton.cdiv(outputs, block_n),)](
        mine, x, weight, bias, residual, pointers, calls,
        N=outputs, K=inputs, BLOCK_N=block_n, BLOCK_K=block_k, num_warps=num_warps, **shared,
    )  # fmt: skip
    _receive[(triton.cdiv(outputs, PIECE),)](total, mine, own, calls, outputs, num_warps=PIECE_WARPS, **shared)
