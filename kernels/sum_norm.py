"""Sum over GPUs, residual add and RMSNorm in one launch: the all-reduce inside the kernel that comes after it anyway.

    s = residual + x[0] + x[1] + ...,   out = s / sqrt(mean(s^2) + eps) * w,      x[r] [T, H] on rank r

A program takes one token. It writes its row of x into a slot of every peer's memory, reads the peers' rows from its own
and goes on as add_norm.py does. Slots, counters and -0.0 for 'nothing has come' are those of one_shot.py, which says
why a slot can be used again; a program counts the calls of its row.

With OVERLAP it starts early, as early_start.py says.
Invariant: all ranks add in the order of the ranks, so they hold the same bits. It loses where T H is some hundred
kilobytes and more: every row is read by all ranks and normalised by each of them.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from .early_start import begin, launch_options
from .one_shot import TL, arrived, nothing, sendable


@triton.jit
def _sum_add_rms_norm(
    out, total, x, residual, weight, own, peers, calls, eps,
    HIDDEN: tl.constexpr, BLOCK: tl.constexpr, RANK: tl.constexpr, RANKS: tl.constexpr, CAPACITY: tl.constexpr,
    WORD: tl.constexpr, NOTHING: tl.constexpr, OVERLAP: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0)
    k = tl.arange(0, BLOCK)
    inside, at = k < HIDDEN, row * HIDDEN + k
    w = tl.load(weight + k, mask=inside, other=0.0).to(tl.float32)
    begin(OVERLAP)
    call = tl.load(calls + row)
    piece = sendable(tl.load(x + at, mask=inside, other=0.0).to(WORD, bitcast=True), NOTHING)
    slot = (call % 3) * RANKS * CAPACITY
    for peer in tl.static_range(RANKS):
        if peer != RANK:
            there = tl.load(peers + peer).to(tl.pointer_type(WORD)) + slot + RANK * CAPACITY
            tl.store(tl.multiple_of(there, 16) + at, piece, mask=inside)
    sums = tl.load(residual + at, mask=inside, other=0.0).to(tl.float32)
    before = ((call + 2) % 3) * RANKS * CAPACITY
    for peer in tl.static_range(RANKS):
        if peer != RANK:
            tl.store(own + before + peer * CAPACITY + at, tl.full([BLOCK], NOTHING, WORD), mask=inside)
    for peer in tl.static_range(RANKS):
        came = piece if peer == RANK else arrived(own + slot + peer * CAPACITY + at, inside, NOTHING)
        sums += came.to(out.dtype.element_ty, bitcast=True).to(tl.float32)
    sums = sums.to(out.dtype.element_ty)
    tl.store(total + at, sums, mask=inside)
    s = sums.to(tl.float32)
    scale = tl.rsqrt(tl.sum(s * s, axis=0) / HIDDEN + eps)
    tl.store(out + at, (s * scale * w).to(out.dtype.element_ty), mask=inside)
    tl.store(calls + row, call + 1)


def sum_add_rms_norm(
    out: torch.Tensor, total: torch.Tensor, x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float,
    own: torch.Tensor, pointers: torch.Tensor, calls: torch.Tensor, rank: int, num_warps: int, overlap: bool,
) -> None:  # fmt: skip
    """Launch: out, total, x, residual `[T, H]` contiguous, weight `[H]`, one dtype; own, this rank's slots, integers as
    wide `[3, ranks, P]`, P at least T H and a multiple of 16, filled with `nothing` at first; pointers int64 `[ranks]`,
    calls int32 `[T]` zeros at first. Checks nothing: see `labllm.parallel.sum_norm`.
    """
    (tokens, hidden), (_, ranks, capacity) = x.shape, own.shape
    _sum_add_rms_norm[(tokens,)](
        out, total, x, residual, weight, own, pointers, calls, eps,
        HIDDEN=hidden, BLOCK=triton.next_power_of_2(hidden), RANK=rank, RANKS=ranks, CAPACITY=capacity,
        WORD=TL[own.dtype], NOTHING=nothing(x.dtype), OVERLAP=overlap, num_warps=num_warps,
        **launch_options(overlap),
    )  # fmt: skip
