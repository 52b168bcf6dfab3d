"""Flash attention for Hopper with the work divided among warps by hand: copies, products and exponentials at once.

In `flash` a warp waits for its scores, takes exponentials, then multiplies again: while exponentials are taken the
tensor cores have only the other warps to feed them, and all warps wait for the same copies. Here, in Gluon, who does
what and who waits for whom is written out. One warp copies k and v through a ring of STAGES tiles each. Two groups of
four warps own 64 queries each, and overlap in two ways:

    within a group    the scores of tile i and the values of tile i - 1 are asked of the tensor cores together; the
                      exponentials of tile i are taken while the values are still being multiplied
    between groups    they take turns to ask, so that one group's exponentials fall into the other's products

Shah et al., "FlashAttention-3: fast and accurate attention with asynchrony and low-precision", 2024. Tiles go from the
last key to the first, so that the masked ones come first and the long loop has no mask.

An mbarrier counts arrivals and flips a phase bit when the last one is in: `full` ones are flipped by the copy engine,
`empty` ones by both groups, `turns` by the other group. Whoever waits names the phase whose end it waits for; phase 1
of a fresh barrier counts as ended, which is why the copying warp finds the ring empty.

Cost and invariant: as `flash`. Compute capability 9.x only, dense layout, 16 bits, head dims that are the
instruction's own (64, 128). It loses on short sequences: a program fills a whole multiprocessor, and nothing hides its
first copies and its last store.
"""

from __future__ import annotations

import math

import torch
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

FLOOR = gl.constexpr(-1.0e38)  # where a running maximum starts: finite, so that (-inf) - FLOOR is -inf and no NaN
ROWS = 64  # queries of a group: what one product instruction takes
REGISTERS = 240, 24  # a thread of a group, of the copying warp: 65536 are shared out


@gluon.jit
def _place(tiles, heads, section):
    """`flash.place`: which tile of which head this program computes."""
    program = gl.program_id(0)
    first = program // (tiles * section) * section
    width = gl.minimum(section, heads - first)
    within = program - first * tiles
    return tiles - 1 - within // width, first + within % width


@gluon.jit
def _fetch(source, ring, full, empty, b, h, i, count):
    """Ask for the i-th tile from the end of k or v, as soon as both groups have left its place in the ring."""
    STAGES: gl.constexpr = ring.shape[0]
    mbarrier.wait(empty.index(i % STAGES), (i // STAGES & 1) ^ 1)
    mbarrier.expect(full.index(i % STAGES), source.block_type.nbytes)
    row = (count - 1 - i) * source.block_type.shape[2]
    tma.async_copy_global_to_shared(source, [b, h, row, 0], full.index(i % STAGES), ring.index(i % STAGES))


@gluon.jit
def _copy(k, v, rings, b, h, count):
    """The copying warp: all tiles in the order in which they are used, k one step ahead of v."""
    k_ring, v_ring, k_full, k_empty, v_full, v_empty = rings
    _fetch(k, k_ring, k_full, k_empty, b, h, 0, count)
    for i in range(1, count):
        _fetch(k, k_ring, k_full, k_empty, b, h, i, count)
        _fetch(v, v_ring, v_full, v_empty, b, h, i - 1, count)
    _fetch(v, v_ring, v_full, v_empty, b, h, count - 1, count)


@gluon.jit
def _scores(query, k_ring, stage, S: gl.constexpr):
    """Ask for the scores of one tile, `[ROWS, BLOCK_N]`; they are there after a wait."""
    ROWS: gl.constexpr = query.shape[0]
    DIM: gl.constexpr = query.shape[1]
    BLOCK_N: gl.constexpr = k_ring.shape[3]
    k_tile = k_ring.index(stage).reshape([BLOCK_N, DIM]).permute([1, 0])
    nothing = gl.zeros([ROWS, BLOCK_N], gl.float32, S)
    return warpgroup_mma(query, k_tile, nothing, use_acc=False, is_async=True)


@gluon.jit
def _values(p, v_ring, stage, acc, O: gl.constexpr):
    """Ask for acc + p v of one tile, `[ROWS, DIM]`; p `[ROWS, BLOCK_N]` float32 stays in registers."""
    BLOCK_N: gl.constexpr = v_ring.shape[3]
    DIM: gl.constexpr = v_ring.shape[4]
    weights = gl.convert_layout(p.to(v_ring.dtype), gl.DotOperandLayout(0, O, 2))
    return warpgroup_mma(weights, v_ring.index(stage).reshape([BLOCK_N, DIM]), acc, is_async=True)


@gluon.jit
def _softmax(scores, l, m, scale, positions, start, k_len, CAUSAL: gl.constexpr, MASKED: gl.constexpr, S: gl.constexpr):
    """`flash.update` but for the values: `(p, l, m, alpha)`; queries at `positions`, keys from `start`."""
    if MASKED:
        BLOCK_N: gl.constexpr = scores.shape[1]
        keys = start + gl.arange(0, BLOCK_N, gl.SliceLayout(0, S))
        last = gl.minimum(positions, k_len - 1) if CAUSAL else gl.zeros_like(positions) + (k_len - 1)
        scores = gl.where(keys[None, :] <= last[:, None], scores, float("-inf"))
    m_new = gl.maximum(m, gl.max(scores, 1) * scale)
    p = gl.exp2(scores * scale - m_new[:, None])
    alpha = gl.exp2(m - m_new)
    return p, l * alpha + gl.sum(p, 1), m_new, alpha


@gluon.jit
def _steps(
    acc, l, m, p, query, rings, mine, theirs, positions, first, last, count, k_len, scale,
    CAUSAL: gl.constexpr, MASKED: gl.constexpr, S: gl.constexpr, O: gl.constexpr,
):  # fmt: skip
    """Steps first .. last - 1 of a group; p holds the exponentials of the step before, not yet multiplied."""
    k_ring, v_ring, k_full, k_empty, v_full, v_empty = rings
    STAGES: gl.constexpr = k_ring.shape[0]
    BLOCK_N: gl.constexpr = k_ring.shape[3]
    for i in range(first, last):
        stage, before = i % STAGES, (i - 1) % STAGES
        mbarrier.wait(mine, (i & 1) ^ 1)
        scores = _scores(query, k_ring, stage, S)
        mbarrier.wait(v_full.index(before), (i - 1) // STAGES & 1)
        acc = _values(p, v_ring, before, acc, O)
        mbarrier.arrive(theirs)
        scores = warpgroup_mma_wait(1, [scores])
        mbarrier.arrive(k_empty.index(stage))
        start = (count - 1 - i) * BLOCK_N
        p, l, m, alpha = _softmax(scores, l, m, scale, positions, start, k_len, CAUSAL, MASKED, S)
        # This wait is early. It ends a basic block, so that exponentials are not scheduled behind the wait for acc.
        mbarrier.wait(k_full.index((i + 1) % STAGES), (i + 1) // STAGES & 1, pred=i + 1 < count)
        acc, p = warpgroup_mma_wait(0, [acc, p])
        mbarrier.arrive(v_empty.index(before))
        acc = acc * gl.convert_layout(alpha, gl.SliceLayout(1, O))[:, None]
    return acc, l, m, p


@gluon.jit
def _attend(
    out, q_tile, q_full, rings, mine, theirs, b, h, m0, shift, k_len, count, masked, scale, CAUSAL: gl.constexpr
):
    """A group of four warps: queries m0 .. m0 + ROWS over `count` tiles, the first `masked` of which need a mask."""
    k_ring, v_ring, k_full, k_empty, v_full, _ = rings
    STAGES: gl.constexpr = k_ring.shape[0]
    BLOCK_N: gl.constexpr = k_ring.shape[3]
    ROWS: gl.constexpr = q_tile.shape[2]
    DIM: gl.constexpr = q_tile.shape[3]
    S: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_N, 16])
    O: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, DIM, 16])
    query = q_tile.reshape([ROWS, DIM])
    positions = shift + m0 + gl.arange(0, ROWS, gl.SliceLayout(1, S))
    acc = gl.zeros([ROWS, DIM], gl.float32, O)
    l = gl.zeros([ROWS], gl.float32, gl.SliceLayout(1, S))
    m = gl.full([ROWS], FLOOR, gl.float32, gl.SliceLayout(1, S))

    mbarrier.wait(q_full, 0)
    mbarrier.wait(k_full.index(0), 0)
    scores = warpgroup_mma_wait(0, [_scores(query, k_ring, 0, S)])
    mbarrier.arrive(k_empty.index(0))
    p, l, m, _ = _softmax(scores, l, m, scale, positions, (count - 1) * BLOCK_N, k_len, CAUSAL, True, S)
    mbarrier.wait(k_full.index(1 % STAGES), 1 // STAGES & 1, pred=count > 1)
    acc, l, m, p = _steps(
        acc, l, m, p, query, rings, mine, theirs, positions, 1, masked, count, k_len, scale, CAUSAL, True, S, O
    )
    acc, l, m, p = _steps(
        acc, l, m, p, query, rings, mine, theirs, positions, masked, count, count, k_len, scale, CAUSAL, False, S, O
    )
    mbarrier.wait(v_full.index((count - 1) % STAGES), (count - 1) // STAGES & 1)
    acc = warpgroup_mma_wait(0, [_values(p, v_ring, (count - 1) % STAGES, acc, O)])
    query.store((acc / gl.convert_layout(l, gl.SliceLayout(1, O))[:, None]).to(out.dtype))
    fence_async_shared()
    tma.async_copy_shared_to_global(out, [b, h, m0, 0], q_tile)
    tma.store_wait(0)


@gluon.jit
def _barriers(n: gl.constexpr, arrivals: gl.constexpr):
    bars = gl.allocate_shared_memory(gl.int64, [n, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(n):
        mbarrier.init(bars.index(i), count=arrivals)
    return bars


@gluon.jit(do_not_specialize=["q_len", "k_len", "tiles", "heads", "section"])
def _flash_gluon(
    q, k, v, out, q_len, k_len, scale, tiles, heads, section,
    Q_HEADS: gl.constexpr, GROUP: gl.constexpr, STAGES: gl.constexpr, CAUSAL: gl.constexpr, REGISTERS: gl.constexpr,
):  # fmt: skip
    """Two tiles of ROWS queries of one head; grid (tiles * heads,). Descriptors as in `flash_tma`."""
    ROWS: gl.constexpr = q.block_type.shape[2]
    BLOCK_N: gl.constexpr = k.block_type.shape[2]
    tile, head = _place(tiles, heads, section)
    b, h = head // Q_HEADS, head % Q_HEADS
    m0 = tile * 2 * ROWS
    shift = k_len - q_len
    end, whole_end = k_len, k_len
    if CAUSAL:
        end, whole_end = gl.minimum(k_len, shift + m0 + 2 * ROWS), gl.minimum(k_len, shift + m0 + 1)
    count = (end + BLOCK_N - 1) // BLOCK_N
    masked = gl.maximum(count - whole_end // BLOCK_N, 1)

    q_tiles = gl.allocate_shared_memory(q.dtype, [2] + q.block_type.shape, q.layout)  # noqa: RUF005
    k_ring = gl.allocate_shared_memory(k.dtype, [STAGES] + k.block_type.shape, k.layout)  # noqa: RUF005
    v_ring = gl.allocate_shared_memory(v.dtype, [STAGES] + v.block_type.shape, v.layout)  # noqa: RUF005
    q_full, turns = _barriers(2, 1), _barriers(2, 1)
    rings = (k_ring, v_ring, _barriers(STAGES, 1), _barriers(STAGES, 2), _barriers(STAGES, 1), _barriers(STAGES, 2))
    for i in gl.static_range(2):
        mbarrier.expect(q_full.index(i), q.block_type.nbytes)
        tma.async_copy_global_to_shared(q, [b, h, m0 + i * ROWS, 0], q_full.index(i), q_tiles.index(i))
    mbarrier.arrive(turns.index(0))
    low = (out, q_tiles.index(0), q_full.index(0), rings, turns.index(0), turns.index(1), b, h, m0)
    high = (out, q_tiles.index(1), q_full.index(1), rings, turns.index(1), turns.index(0), b, h, m0 + ROWS)
    rest = (shift, k_len, count, masked, scale, CAUSAL)
    gl.warp_specialize(
        [(_attend, low + rest), (_attend, high + rest), (_copy, (k, v, rings, b, h // GROUP, count))], [4, 1], REGISTERS
    )


def flash_gluon(
    out: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool, section: int,
    block_n: int, num_stages: int,
) -> None:  # fmt: skip
    """Write the attention of q `[B, Hq, Tq, D]` over k, v `[B, Hkv, Tk, D]` into `out`, alike in shape to q."""
    batch, q_heads, q_len, dim = q.shape
    kv_heads, k_len = k.shape[1:3]
    element = gl.bfloat16 if q.dtype == torch.bfloat16 else gl.float16

    def described(x: torch.Tensor, rows: int) -> TensorDescriptor:
        block = [1, 1, rows, dim]
        return TensorDescriptor.from_tensor(x, block, gl.NVMMASharedLayout.get_default_for(block, element))

    tiles, heads = triton.cdiv(q_len, 2 * ROWS), batch * q_heads
    _flash_gluon[(tiles * heads,)](
        described(q, ROWS), described(k, block_n), described(v, block_n), described(out, ROWS), q_len, k_len,
        math.log2(math.e) / math.sqrt(dim), tiles, heads, section, Q_HEADS=q_heads, GROUP=q_heads // kv_heads,
        STAGES=num_stages, CAUSAL=causal, REGISTERS=REGISTERS, num_warps=4,
    )  # fmt: skip
