"""Flash attention for Hopper with the work divided among warps by hand: copies, products and exponentials at once.

A program takes 128 queries of one head: two groups of four warps compute, one warp copies (kernels/hopper.py says
what each does and how they wait for one another).

Cost and invariant: as `flash`. It loses on short sequences: a program fills a whole multiprocessor, and nothing hides
its first copies and its last store. `flash_persistent` does.
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
def _group(
    out, q_tile, q_full, rings, mine, theirs, b, h, m0, shift, k_len, count, masked, scale, CAUSAL: gl.constexpr
):  # fmt: skip
    query = q_tile.reshape([q_tile.shape[2], q_tile.shape[3]])
    mbarrier.wait(q_full, 0)
    answer = attend(query, rings, mine, theirs, shift + m0, k_len, count, masked, 0, 0, scale, CAUSAL)
    query.store(answer.to(out.dtype))
    fence_async_shared()
    tma.async_copy_shared_to_global(out, [b, h, m0, 0], q_tile)
    tma.store_wait(0)


@gluon.jit(do_not_specialize=["q_len", "k_len", "tiles", "heads", "section", "q_heads", "group"])
def _flash_gluon(
    q, k, v, out, q_len, k_len, scale, tiles, heads, section, q_heads, group,
    STAGES: gl.constexpr, CAUSAL: gl.constexpr, REGISTERS: gl.constexpr,
):  # fmt: skip
    """Two tiles of ROWS queries of one head; grid (tiles * heads,). Descriptors as in `flash_tma`."""
    ROWS: gl.constexpr = q.block_type.shape[2]
    BLOCK_N: gl.constexpr = k.block_type.shape[2]
    head, m0, count, masked = locate(gl.program_id(0), tiles, heads, section, q_len, k_len, 2 * ROWS, BLOCK_N, CAUSAL)
    b, h = head // q_heads, head % q_heads

    q_tiles = gl.allocate_shared_memory(q.dtype, [2] + q.block_type.shape, q.layout)  # noqa: RUF005
    k_ring = gl.allocate_shared_memory(k.dtype, [STAGES] + k.block_type.shape, k.layout)  # noqa: RUF005
    v_ring = gl.allocate_shared_memory(v.dtype, [STAGES] + v.block_type.shape, v.layout)  # noqa: RUF005
    q_full, turns = barriers(2, 1), barriers(2, 1)
    rings = (k_ring, v_ring, barriers(STAGES, 1), barriers(STAGES, 2), barriers(STAGES, 1), barriers(STAGES, 2))
    for i in gl.static_range(2):
        mbarrier.expect(q_full.index(i), q.block_type.nbytes)
        tma.async_copy_global_to_shared(q, [b, h, m0 + i * ROWS, 0], q_full.index(i), q_tiles.index(i))
    mbarrier.arrive(turns.index(0))
    low = (out, q_tiles.index(0), q_full.index(0), rings, turns.index(0), turns.index(1), b, h, m0)
    high = (out, q_tiles.index(1), q_full.index(1), rings, turns.index(1), turns.index(0), b, h, m0 + ROWS)
    rest = (k_len - q_len, k_len, count, masked, scale, CAUSAL)
    gl.warp_specialize(
        [(_group, low + rest), (_group, high + rest), (fetch_all, (k, v, rings, b, h // group, count, 0))],
        [4, 1],
        REGISTERS,
    )


def flash_gluon(
    out: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool, section: int,
    block_n: int, num_stages: int,
) -> None:  # fmt: skip
    """Write the attention of q `[B, Hq, Tq, D]` over k, v `[B, Hkv, Tk, D]` into `out`, alike in shape to q."""
    batch, q_heads, q_len, dim = q.shape
    kv_heads, k_len = k.shape[1:3]
    tiles, heads = triton.cdiv(q_len, 2 * ROWS), batch * q_heads
    _flash_gluon[(tiles * heads,)](
        described(q, ROWS), described(k, block_n), described(v, block_n), described(out, ROWS), q_len, k_len,
        math.log2(math.e) / math.sqrt(dim), tiles, heads, section, q_heads, q_heads // kv_heads,
        STAGES=num_stages, CAUSAL=causal, REGISTERS=REGISTERS, num_warps=4,
    )  # fmt: skip
