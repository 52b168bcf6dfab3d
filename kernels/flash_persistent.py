"""Flash attention for Hopper by programs that stay: one a multiprocessor, and each takes tile after tile.

In `flash_gluon` a program fills its multiprocessor, so the next starts when it has ended: its first copies, its first
scores and its last store have nothing beside them. Here the copying warp runs ahead into the next tile of queries
while the two groups finish the last, and the answer leaves from a place of its own in shared memory, so nobody waits
for the store either. What a group does with a tile is `hopper.attend`; barriers count on from tile to tile.

Tiles differ in length under a causal mask, and a program's share is fixed before it starts. The list goes from long to
short, and programs take it in rounds, back and forth, so that who was given the longer one in a round gets the shorter
in the next.

Cost, invariant and limits: as `flash_gluon`. It loses to it where there are few more tiles than multiprocessors, and
where another kernel runs beside it: a share that was fixed does not make room.
"""

from __future__ import annotations

import math

import torch
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier, tma

from .hopper import REGISTERS, ROWS, attend, barriers, described, fetch_all, locate


@gluon.jit
def _share(items):
    """How many of the items this program takes."""
    rounds = items // gl.num_programs(0)
    return rounds + (_item(rounds) < items).to(gl.int32)


@gluon.jit
def _item(turn):
    """The item that this program takes in a round: programs line up forwards and backwards in turn."""
    back = gl.num_programs(0) - 1 - gl.program_id(0)
    return turn * gl.num_programs(0) + gl.where(turn % 2 == 0, gl.program_id(0), back)


@gluon.jit
def _copy(q, k, v, q_tiles, q_full, q_empty, rings, work, CAUSAL: gl.constexpr):
    """The copying warp: queries of both groups, then keys and values, for each item of this program."""
    tiles, heads, section, q_len, k_len, q_heads, group = work
    ROWS: gl.constexpr = q.block_type.shape[2]
    base = 0
    for turn in range(_share(tiles * heads)):
        head, m0, count, _ = locate(
            _item(turn), tiles, heads, section, q_len, k_len, 2 * ROWS, k.block_type.shape[2], CAUSAL
        )
        b, h = head // q_heads, head % q_heads
        for i in gl.static_range(2):
            mbarrier.wait(q_empty.index(i), (turn & 1) ^ 1)
            mbarrier.expect(q_full.index(i), q.block_type.nbytes)
            tma.async_copy_global_to_shared(q, [b, h, m0 + i * ROWS, 0], q_full.index(i), q_tiles.index(i))
        fetch_all(k, v, rings, b, h // group, count, base)
        base += count


@gluon.jit
def _group(
    out, q_tile, out_tile, q_full, q_empty, rings, mine, theirs, work, scale,
    INDEX: gl.constexpr, CAUSAL: gl.constexpr,
):  # fmt: skip
    """Group INDEX: its half of the queries of each item of this program."""
    tiles, heads, section, q_len, k_len, q_heads, _ = work
    ROWS: gl.constexpr = q_tile.shape[2]
    DIM: gl.constexpr = q_tile.shape[3]
    query = q_tile.reshape([ROWS, DIM])
    base, taken = 0, 0
    for turn in range(_share(tiles * heads)):
        head, m0, count, masked = locate(
            _item(turn), tiles, heads, section, q_len, k_len, 2 * ROWS, rings[0].shape[3], CAUSAL
        )
        m0 += INDEX * ROWS
        mbarrier.wait(q_full, turn & 1)
        answer = attend(
            query, rings, mine, theirs, k_len - q_len + m0, k_len, count, masked, base, taken, scale, CAUSAL
        )
        mbarrier.arrive(q_empty)
        base += count
        taken += count - 1
        tma.store_wait(0)
        out_tile.reshape([ROWS, DIM]).store(answer.to(out.dtype))
        fence_async_shared()
        tma.async_copy_shared_to_global(out, [head // q_heads, head % q_heads, m0, 0], out_tile)
    tma.store_wait(0)


@gluon.jit(do_not_specialize=["q_len", "k_len", "tiles", "heads", "section", "q_heads", "group"])
def _flash_persistent(
    q, k, v, out, q_len, k_len, scale, tiles, heads, section, q_heads, group,
    STAGES: gl.constexpr, CAUSAL: gl.constexpr, REGISTERS: gl.constexpr,
):  # fmt: skip
    """All items of a program; any grid (n,). Descriptors as in `flash_tma`."""
    q_tiles = gl.allocate_shared_memory(q.dtype, [2] + q.block_type.shape, q.layout)  # noqa: RUF005
    outs = gl.allocate_shared_memory(q.dtype, [2] + q.block_type.shape, q.layout)  # noqa: RUF005
    k_ring = gl.allocate_shared_memory(k.dtype, [STAGES] + k.block_type.shape, k.layout)  # noqa: RUF005
    v_ring = gl.allocate_shared_memory(v.dtype, [STAGES] + v.block_type.shape, v.layout)  # noqa: RUF005
    q_full, q_empty, turns = barriers(2, 1), barriers(2, 1), barriers(2, 1)
    rings = (k_ring, v_ring, barriers(STAGES, 1), barriers(STAGES, 2), barriers(STAGES, 1), barriers(STAGES, 2))
    mbarrier.arrive(turns.index(0))
    work = (tiles, heads, section, q_len, k_len, q_heads, group)
    low = (
        out, q_tiles.index(0), outs.index(0), q_full.index(0), q_empty.index(0), rings, turns.index(0), turns.index(1),
        work, scale, 0, CAUSAL,
    )  # fmt: skip
    high = (
        out, q_tiles.index(1), outs.index(1), q_full.index(1), q_empty.index(1), rings, turns.index(1), turns.index(0),
        work, scale, 1, CAUSAL,
    )  # fmt: skip
    copy = (q, k, v, q_tiles, q_full, q_empty, rings, work, CAUSAL)
    gl.warp_specialize([(_group, low), (_group, high), (_copy, copy)], [4, 1], REGISTERS)


def flash_persistent(
    out: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool, section: int,
    block_n: int, num_stages: int, programs: int,
) -> None:  # fmt: skip
    """Write the attention of q `[B, Hq, Tq, D]` over k, v `[B, Hkv, Tk, D]` into `out`, by at most `programs`."""
    batch, q_heads, q_len, dim = q.shape
    kv_heads, k_len = k.shape[1:3]
    tiles, heads = triton.cdiv(q_len, 2 * ROWS), batch * q_heads
    _flash_persistent[(min(programs, tiles * heads),)](
        described(q, ROWS), described(k, block_n), described(v, block_n), described(out, ROWS), q_len, k_len,
        math.log2(math.e) / math.sqrt(dim), tiles, heads, section, q_heads, q_heads // kv_heads,
        STAGES=num_stages, CAUSAL=causal, REGISTERS=REGISTERS, num_warps=4,
    )  # fmt: skip
