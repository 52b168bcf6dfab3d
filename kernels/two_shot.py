"""Two-shot all-reduce by pushing: every rank adds up its part of the numbers and sends the sum to the others.

    x[rank] [n] on every rank  ->  sum over ranks [n], on every rank

Of a piece of ranks BLOCK numbers the r-th block belongs to rank r. First everyone pushes its r-th block to rank r, who
adds them; then rank r pushes the sum to everyone. That is two crossings of the link and 2 (ranks - 1) / ranks N bytes a
rank, where one_shot.py has one crossing and (ranks - 1) N bytes: with more than two ranks it wins for long messages.

Slots, counters and -0.0 for 'nothing has come' are those of one_shot.py, once for blocks and once for sums. A slot can
be used again for the same reason: whoever leaves a call has read the sum of the first block, which holds what every
rank sent in this call, after it had filled the slots of the call before.

Invariant: a block is added by one rank, in order of rank in float32, so all ranks hold the same bits.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from .early_start import begin, launch_options
from .one_shot import SLOTS, TL, WORDS, arrived, nothing, sendable

BLOCK, WARPS, PROGRAMS = 256, 1, 1024


@triton.jit
def _words(x, at, n, WORD: tl.constexpr, NOTHING: tl.constexpr):
    """A piece of x as it is sent."""
    return sendable(tl.load(x + at, mask=at < n, other=0.0).to(WORD, bitcast=True), NOTHING)


@triton.jit
def _two_shot(
    out, x, own, peers, calls, n,
    RANK: tl.constexpr, RANKS: tl.constexpr, PROGRAMS: tl.constexpr, BLOCK: tl.constexpr,
    WORD: tl.constexpr, NOTHING: tl.constexpr, FENCE: tl.constexpr, OVERLAP: tl.constexpr,
):  # fmt: skip
    begin(OVERLAP)
    PART: tl.constexpr = PROGRAMS * BLOCK
    HALF: tl.constexpr = RANKS * PART
    program = tl.program_id(0)
    call = tl.load(calls + program)
    k = tl.arange(0, BLOCK)
    place = program * BLOCK + k
    for first in range(program * RANKS * BLOCK, n, PROGRAMS * RANKS * BLOCK):
        slot = (call % 3) * 2 * HALF
        mine = first + RANK * BLOCK + k
        for peer in tl.static_range(RANKS):
            if peer != RANK:
                at = first + peer * BLOCK + k
                theirs = tl.multiple_of(tl.load(peers + peer).to(tl.pointer_type(WORD)), 16)
                tl.store(theirs + slot + RANK * PART + place, _words(x, at, n, WORD, NOTHING), mask=at < n)
        before = ((call + 2) % 3) * 2 * HALF
        for peer in tl.static_range(RANKS):
            if peer != RANK:
                tl.store(own + before + peer * PART + place, tl.full([BLOCK], NOTHING, WORD))
                tl.store(own + before + HALF + peer * PART + place, tl.full([BLOCK], NOTHING, WORD))
        total = tl.zeros([BLOCK], tl.float32)
        for peer in tl.static_range(RANKS):
            if peer == RANK:
                came = _words(x, mine, n, WORD, NOTHING)
            else:
                came = arrived(own + slot + peer * PART + place, mine < n, NOTHING)
            total += came.to(out.dtype.element_ty, bitcast=True).to(tl.float32)
        word = sendable(total.to(out.dtype.element_ty).to(WORD, bitcast=True), NOTHING)
        tl.store(out + mine, word.to(out.dtype.element_ty, bitcast=True), mask=mine < n)
        for peer in tl.static_range(RANKS):
            if peer != RANK:
                theirs = tl.multiple_of(tl.load(peers + peer).to(tl.pointer_type(WORD)), 16)
                tl.store(theirs + slot + HALF + RANK * PART + place, word, mask=mine < n)
        for peer in tl.static_range(RANKS):
            if peer != RANK:
                at = first + peer * BLOCK + k
                came = arrived(own + slot + HALF + peer * PART + place, at < n, NOTHING)
                tl.store(out + at, came.to(out.dtype.element_ty, bitcast=True), mask=at < n)
        call += 1
        if FENCE:  # the filling is done before the next piece is sent, as between two launches
            tl.inline_asm_elementwise("fence.acq_rel.sys; mov.u32 $0, $1;", "=r,r", [call], tl.int32, False, 1)
    tl.store(calls + program, call)


def two_shot(
    x: torch.Tensor, own: torch.Tensor, pointers: torch.Tensor, calls: torch.Tensor, rank: int, *, overlap: bool = False
) -> torch.Tensor:
    """The sum over ranks of contiguous x [n], a new tensor.

    own       this rank's slots, integers as wide as x's elements [3, 2 ranks, programs BLOCK], all `nothing` at first
    pointers  int64 [ranks], the addresses of every rank's slots
    calls     int32 [programs], zeros at first: the pieces that each program has sent
    overlap   start while the kernel before still runs, and wait for it inside; needs compute capability 9.0
    """
    (slots, places, part), ranks, programs = own.shape, len(pointers), len(calls)
    if not x.is_contiguous() or x.element_size() not in WORDS or own.dtype != WORDS[x.element_size()]:
        raise ValueError(f"x must be contiguous, of 2 or 4 bytes an element, the slots' width; got {x.dtype}")
    if (slots, places, part) != (SLOTS, 2 * ranks, BLOCK * programs):
        raise ValueError(f"slots must be {[SLOTS, 2 * ranks, BLOCK * programs]}, got {list(own.shape)}")
    out, fence = torch.empty_like(x), x.is_cuda and x.numel() > programs * ranks * BLOCK
    _two_shot[(min(programs, triton.cdiv(x.numel(), ranks * BLOCK)),)](
        out, x, own, pointers, calls, x.numel(), rank, ranks, programs, BLOCK, TL[own.dtype], nothing(x.dtype),
        fence, overlap, num_warps=WARPS, **launch_options(overlap),
    )  # fmt: skip
    return out
