"""Products of one token whose sums over GPUs happen inside them: one kernel sends as it computes, the next one waits.

A layer on several GPUs is product, sum over ranks, norm, product. As kernels of their own the sum and the norm cost a
launch, a pass and the link's latency, twice a layer. Here they cost the latency alone:

    _push_linear      y = x weight^T (+ bias, + residual on the first rank): a program sends its outputs as soon as it
                      has them, and keeps its own as float32
    _collect_linear   h = sum over ranks of what was sent, y = RMSNorm(h) weight^T, gated or not: every program has
                      asked for its first weights before it waits, and reads h once for all the rows that it takes

What is sent are words of 64 bits, a value as float32 beside the flag of its sum, written at once: who sees the flag has
the value, so no message says that another has come. NCCL's protocol for short messages (LL) is of this kind. A flag and
not an empty value (one_shot.py) because many programs read a word, and none could know when all have.

The hidden state between the kernels is never written as a whole: it is `own` and the inbox, and `_close` adds them up
where somebody wants it as a tensor. On the first rank a summand contains the residual, whose parts are read again.

Two inboxes are used in turns. A rank writes to one for sum n + 2 only after it has collected sum n + 1, to which all
others came after they had collected sum n: so nothing unread is overwritten, as long as every rank does the same sums.

With OVERLAP all start early (early_start.py). Invariant: each weight is read once; all ranks add in the order of the
ranks and compute the same h, bit by bit. It loses with more than a few tokens, as skinny_linear.py does, and a program
holds a whole row of h, so that H is at most some 16 thousand.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from .activations import silu
from .early_start import begin, launch_options
from .skinny_linear import _tile


@triton.jit
def flag_of(epoch, number):
    """The flag of sum `number` of this step; epoch int64 [1] grows by more than a step has sums."""
    return (tl.load(epoch) + number) & 0xFFFFFFFF


@triton.jit
def push(inboxes, at, value, flag, inside, RANK: tl.constexpr, SIZE: tl.constexpr):
    """Words of float32 `value` to offsets `at` of every other rank's inbox; inboxes: their addresses, int64 [SIZE]."""
    word = (value.to(tl.int32, bitcast=True).to(tl.int64) << 32) | flag
    for peer in tl.static_range(SIZE):
        if peer != RANK:
            inbox = tl.multiple_of(tl.load(inboxes + peer).to(tl.pointer_type(tl.int64)), 16)
            tl.store(inbox + at, word, mask=inside)


@triton.jit
def collect(inbox, at, flag, inside):
    """The values at offsets `at` of an inbox, once all of them carry the flag."""
    word = tl.load(inbox + at, mask=inside, other=0, volatile=True)
    while tl.max(tl.where(inside & ((word & 0xFFFFFFFF) != flag), 1, 0)) > 0:
        word = tl.load(inbox + at, mask=inside, other=0, volatile=True)
    return (word >> 32).to(tl.int32).to(tl.float32, bitcast=True)


@triton.jit
def sum_of_ranks(mine, inbox, at, flag, inside, PART: tl.constexpr, RANK: tl.constexpr, SIZE: tl.constexpr):
    """mine and what the other ranks sent, added in the order of the ranks; `at` is the offset in a rank's part."""
    total = mine if RANK == 0 else collect(inbox, at, flag, inside)
    for rank in tl.static_range(1, SIZE):
        if rank == RANK:
            total += mine
        else:
            total += collect(inbox, rank * PART + at, flag, inside)
    return total


@triton.jit(do_not_specialize=["number", "before"])
def _push_linear(
    own, x, weight, bias, residual, own_before, inboxes, inbox, epoch, number, first, before, first_before,
    N: tl.constexpr, K: tl.constexpr, PART: tl.constexpr, RANK: tl.constexpr, SIZE: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, OVERLAP: tl.constexpr,
):  # fmt: skip
    """BLOCK_N outputs of x `[K]`. residual `[N]`, or own_before `[N]` (the parts of sum `before`), or neither."""
    n = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    there, row = (n < N)[:, None], n.to(tl.int64)[:, None]
    k = tl.arange(0, BLOCK_K)[None, :]
    sums = tl.zeros([BLOCK_N, BLOCK_K], tl.float32)
    w = _tile(weight, row, k, there & (k < K), K)
    begin(OVERLAP)
    for start in tl.range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)[None, :]
        ahead = k + BLOCK_K
        next_w = _tile(weight, row, ahead, there & (ahead < K), K)
        sums += w.to(tl.float32) * tl.load(x + k, mask=k < K, other=0.0).to(tl.float32)
        w = next_w
    y = tl.sum(sums, axis=1)
    if bias is not None:
        y += tl.load(bias + n, mask=n < N, other=0.0).to(tl.float32)
    if residual is not None:
        y += tl.load(residual + n, mask=n < N, other=0.0).to(tl.float32)
    if own_before is not None:
        mine = tl.load(own_before + n, mask=n < N, other=0.0)
        y += sum_of_ranks(mine, inbox + first_before, n, flag_of(epoch, before), n < N, PART, RANK, SIZE)
    tl.store(own + n, y, mask=n < N)
    push(inboxes, first + RANK * PART + n, y, flag_of(epoch, number), n < N, RANK, SIZE)


@triton.jit(do_not_specialize=["number"])
def _collect_linear(
    out, own, weight, bias, gain, inbox, epoch, number, first, eps,
    N: tl.constexpr, K: tl.constexpr, GATED: tl.constexpr, PART: tl.constexpr, RANK: tl.constexpr, SIZE: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, OVERLAP: tl.constexpr,
):  # fmt: skip
    """Outputs of RMSNorm(h), h `[K]` in float32 parts, BLOCK_N at a time until none is left for this program."""
    k = tl.arange(0, BLOCK_K)
    inside = k < K
    g = tl.load(gain + k, mask=inside, other=0.0).to(tl.float32)
    step = tl.num_programs(0) * BLOCK_N
    n = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    row, column, there = n.to(tl.int64)[:, None], k[None, :], (n < N)[:, None] & inside[None, :]
    w = _tile(weight, row, column, there, K)
    u = _tile(weight, row + N, column, there, K) if GATED else 0.0
    begin(OVERLAP)
    flag = flag_of(epoch, number)
    mine = tl.load(own + k, mask=inside, other=0.0)
    h = sum_of_ranks(mine, inbox + first, k, flag, inside, PART, RANK, SIZE)
    scale = tl.rsqrt(tl.sum(h * h) / K + eps)
    h = (h * g)[None, :]
    for start in tl.range(0, N, step):
        n = start + tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
        ahead = n + step
        row, there = ahead.to(tl.int64)[:, None], (ahead < N)[:, None] & inside[None, :]
        next_w = _tile(weight, row, column, there, K)
        next_u = _tile(weight, row + N, column, there, K) if GATED else 0.0
        y = tl.sum(w.to(tl.float32) * h, axis=1) * scale
        if bias is not None:
            y += tl.load(bias + n, mask=n < N, other=0.0).to(tl.float32)
        if GATED:
            up = tl.sum(u.to(tl.float32) * h, axis=1) * scale
            if bias is not None:
                up += tl.load(bias + N + n, mask=n < N, other=0.0).to(tl.float32)
            y = silu(y) * up
        tl.store(out + n, y.to(out.dtype.element_ty), mask=n < N)
        w, u = next_w, next_u


@triton.jit(do_not_specialize=["number"])
def _close(
    out, own, inbox, epoch, number, first, count,
    PART: tl.constexpr, RANK: tl.constexpr, SIZE: tl.constexpr, BLOCK: tl.constexpr, OVERLAP: tl.constexpr,
):  # fmt: skip
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    begin(OVERLAP)
    flag = flag_of(epoch, number)
    mine = tl.load(own + at, mask=inside, other=0.0)
    total = sum_of_ranks(mine, inbox + first, at, flag, inside, PART, RANK, SIZE)
    tl.store(out + at, total.to(out.dtype.element_ty), mask=inside)


def push_linear(
    own: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, residual: torch.Tensor | None,
    own_before: torch.Tensor | None, before: int, inboxes: torch.Tensor, inbox: torch.Tensor, epoch: torch.Tensor,
    number: int, rank: int, block_n: int, block_k: int, num_warps: int, overlap: bool,
) -> None:  # fmt: skip
    """Launch: own float32 `[1, N]`, x `[1, K]`, weight `[N, K]`, bias `[N]`, residual `[1, N]`, one dtype; own_before
    float32 `[1, N]` with sum `before` as residual; inboxes, inbox, epoch and number as for push_linear.
    """
    (outputs, inputs), (_, size, room) = weight.shape, inbox.shape
    _push_linear[(triton.cdiv(outputs, block_n),)](
        own, x, weight, bias, residual, own_before, inboxes, inbox, epoch, number, number % 2 * size * room, before,
        before % 2 * size * room, N=outputs, K=inputs, PART=room, RANK=rank, SIZE=size, BLOCK_N=block_n,
        BLOCK_K=block_k, OVERLAP=overlap, num_warps=num_warps, **launch_options(overlap),
    )  # fmt: skip


def collect_linear(
    out: torch.Tensor, own: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, gain: torch.Tensor,
    eps: float, gated: bool, inbox: torch.Tensor, epoch: torch.Tensor, number: int, rank: int, programs: int,
    block_n: int, num_warps: int, overlap: bool,
) -> None:  # fmt: skip
    """Launch: out `[1, N]`, own float32 `[1, K]`, weight `[N, K]` (`[2 N, K]` if gated, gates first), gain `[K]`;
    `programs` share the outputs; inbox, epoch and number as for push_linear.
    """
    outputs, inputs, (_, size, room) = out.shape[1], weight.shape[1], inbox.shape
    _collect_linear[(min(programs, triton.cdiv(outputs, block_n)),)](
        out, own, weight, bias, gain, inbox, epoch, number, number % 2 * size * room, eps,
        N=outputs, K=inputs, GATED=gated, PART=room, RANK=rank, SIZE=size, BLOCK_N=block_n,
        BLOCK_K=triton.next_power_of_2(inputs), OVERLAP=overlap, num_warps=num_warps,
        **launch_options(overlap),
    )  # fmt: skip


def close(
    out: torch.Tensor, own: torch.Tensor, inbox: torch.Tensor, epoch: torch.Tensor, number: int, rank: int, block: int,
    num_warps: int, overlap: bool,
) -> None:  # fmt: skip
    """Launch: out `[1, K]` in any dtype, own float32 `[1, K]`; inbox, epoch and number as for push_linear."""
    _, size, room = inbox.shape
    _close[(triton.cdiv(out.numel(), block),)](
        out, own, inbox, epoch, number, number % 2 * size * room, out.numel(), PART=room, RANK=rank, SIZE=size,
        BLOCK=block, OVERLAP=overlap, num_warps=num_warps, **launch_options(overlap),
    )  # fmt: skip
