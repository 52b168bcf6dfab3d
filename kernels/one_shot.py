"""One-shot all-reduce without a flag and without a barrier: the numbers themselves say that they have arrived.

    x[rank] [n] on every rank  ->  sum over ranks [n], on every rank

Every program writes its piece of x into a slot of every peer's memory, then reads the peers' pieces from its own. A
slot holds -0.0 in every place until a number comes, and -0.0 is sent as 0.0, so a reader asks again until no -0.0 is
left. That is one crossing of the link (two with a flag that must come behind its data), (n - 1) N bytes a rank, and
no bytes for flags. The idea is Lamport's: wait for the value, not for a message about it.

Why slots can be used again. Call k of a program uses slot k mod 3 and, once it has sent its piece, fills the slot of
call k - 1, which it has read by then, with -0.0. A peer writes there next in call k + 2, which it enters only after
it has read, in call k + 1, what this program sent in call k + 1, after that filling. With two slots the peer could be
there before the filling. Programs are told apart by number and count their own calls in memory, so this holds for
calls of any sizes in any order, and in a CUDA graph, which always replays the same arguments. What is larger than the
slots goes piece by piece, each a call in this sense; between two a fence does what the end of a launch does otherwise.

Invariants: all ranks make the same calls in the same order, each on one stream. The sum goes in order of rank in
float32, so all ranks hold the same bits. Among two ranks it moves as few bytes as any other way; among more it loses
from some hundred kilobytes on, where two-shot moves fewer.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl

from .early_start import begin, launch_options


class Tile(NamedTuple):
    """Numbers that a program takes at a time, its warps, and how many programs there are at most."""

    block: int
    warps: int
    programs: int


SLOTS = 3
WORDS = {2: torch.int16, 4: torch.int32}
SHORT = Tile(256, 1, 4096)  # small programs: all of a short message leaves at once
LONG = Tile(1024, 2, 2048)  # more bytes on their way, for what goes piece by piece
TL = {torch.int16: tl.int16, torch.int32: tl.int32}


@triton.jit
def sendable(word, NOTHING: tl.constexpr):
    """Numbers as integers, 0.0 for -0.0: none of them means that nothing has come."""
    return tl.where(word == NOTHING, 0, word).to(word.dtype)


@triton.jit
def arrived(here, inside, NOTHING: tl.constexpr):
    """What has come to a slot, once all of it has."""
    came = tl.load(here, mask=inside, other=0, volatile=True)
    while tl.max((came == NOTHING).to(tl.int32), axis=0) > 0:
        came = tl.load(here, mask=inside, other=0, volatile=True)
    return came


@triton.jit
def _one_shot(
    out, x, own, peers, calls, n,
    RANK: tl.constexpr, RANKS: tl.constexpr, CAPACITY: tl.constexpr, BLOCK: tl.constexpr, GATHER: tl.constexpr,
    WORD: tl.constexpr, NOTHING: tl.constexpr, FENCE: tl.constexpr, OVERLAP: tl.constexpr,
):  # fmt: skip
    begin(OVERLAP)
    program = tl.program_id(0)
    call = tl.load(calls + program)
    k = tl.arange(0, BLOCK)
    place = program * BLOCK + k
    for first in range(program * BLOCK, n, CAPACITY):
        at = first + k
        inside = at < n
        piece = sendable(tl.load(x + at, mask=inside, other=0.0).to(WORD, bitcast=True), NOTHING)
        slot = (call % 3) * RANKS * CAPACITY
        for peer in tl.static_range(RANKS):
            if peer != RANK:
                theirs = tl.multiple_of(tl.load(peers + peer).to(tl.pointer_type(WORD)), 16)  # so that stores are wide
                tl.store(theirs + slot + RANK * CAPACITY + place, piece, mask=inside)
        before = ((call + 2) % 3) * RANKS * CAPACITY
        for peer in tl.static_range(RANKS):
            if peer != RANK:
                tl.store(own + before + peer * CAPACITY + place, tl.full([BLOCK], NOTHING, WORD))
        total = tl.zeros([BLOCK], tl.float32)
        for peer in tl.static_range(RANKS):
            came = piece if peer == RANK else arrived(own + slot + peer * CAPACITY + place, inside, NOTHING)
            if GATHER:
                tl.store(out + peer * n + at, came.to(out.dtype.element_ty, bitcast=True), mask=inside)
            else:
                total += came.to(out.dtype.element_ty, bitcast=True).to(tl.float32)
        if not GATHER:
            tl.store(out + at, total.to(out.dtype.element_ty), mask=inside)
        call += 1
        if FENCE:  # the filling is done before the next piece is sent, as between two launches
            tl.inline_asm_elementwise("fence.acq_rel.sys; mov.u32 $0, $1;", "=r,r", [call], tl.int32, False, 1)
    tl.store(calls + program, call)


def nothing(dtype: torch.dtype) -> int:
    """-0.0 of a floating dtype of 2 or 4 bytes as the integer of its bits."""
    return -(1 << (8 * dtype.itemsize - 1))


def one_shot(
    x: torch.Tensor, own: torch.Tensor, pointers: torch.Tensor, calls: torch.Tensor, rank: int, *,
    tile: Tile = SHORT, gather: bool = False, overlap: bool = False,
) -> torch.Tensor:  # fmt: skip
    """The sum over ranks of contiguous x [n], a new tensor; with `gather` everyone's x instead, [ranks, n].

    own       this rank's slots, integers as wide as x's elements [3, ranks, capacity], all `nothing` at first; capacity
              is programs times block, and of a larger x every program takes several pieces
    pointers  int64 [ranks], the addresses of every rank's slots
    calls     int32 [programs], zeros at first: the pieces that each program has sent
    overlap   start while the kernel before still runs, and wait for it inside; needs compute capability 9.0
    """
    slots, ranks, capacity = own.shape
    if not x.is_contiguous() or x.element_size() not in WORDS or own.dtype != WORDS[x.element_size()]:
        raise ValueError(f"x must be contiguous, of 2 or 4 bytes an element, the slots' width; got {x.dtype}")
    if slots != SLOTS or capacity != len(calls) * tile.block:
        raise ValueError(f"there must be {SLOTS} slots of {len(calls)} x {tile.block} numbers, got {list(own.shape)}")
    out = x.new_empty(ranks, x.numel()) if gather else torch.empty_like(x)
    fence = x.numel() > capacity and x.is_cuda
    _one_shot[(min(len(calls), triton.cdiv(x.numel(), tile.block)),)](
        out, x, own, pointers, calls, x.numel(), rank, ranks, capacity, tile.block, gather, TL[own.dtype],
        nothing(x.dtype), fence, overlap, num_warps=tile.warps, **launch_options(overlap),
    )  # fmt: skip
    return out
