"""What the parts of a Hopper attention program do: the warp that copies, and the groups of warps that compute.

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

`flash_gluon` and `flash_persistent` are built of these. Compute capability 9.x only, dense layout, 16 bits, head dims
that are the instruction's own (64, 128).
"""

from __future__ import annotations

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma, warpgroup_mma, warpgroup_mma_wait
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

FLOOR = gl.constexpr(-1.0e38)  # where a running maximum starts: finite, so that (-inf) - FLOOR is -inf and no NaN
ROWS = 64  # queries of a group: what one product instruction takes
REGISTERS = 240, 24  # a thread of a group, of the copying warp: 65536 are shared out


@gluon.jit
def locate(
    item, tiles, heads, section, q_len, k_len, QUERIES: gl.constexpr, BLOCK_N: gl.constexpr, CAUSAL: gl.constexpr
):  # fmt: skip
    """Work item to `(head, first query, tiles of keys that QUERIES see, how many of them need a mask)`.

    The order is that of `flash.place`: by sections of heads, and the longest first.
    """
    first = item // (tiles * section) * section
    width = gl.minimum(section, heads - first)
    within = item - first * tiles
    m0 = (tiles - 1 - within // width) * QUERIES
    end, whole_end = k_len, k_len
    if CAUSAL:
        end, whole_end = gl.minimum(k_len, k_len - q_len + m0 + QUERIES), gl.minimum(k_len, k_len - q_len + m0 + 1)
    count = (end + BLOCK_N - 1) // BLOCK_N
    return first + within % width, m0, count, gl.maximum(count - whole_end // BLOCK_N, 1)


@gluon.jit
def fetch(source, ring, full, empty, b, h, row, n):
    """Ask for a tile of k or v, the n-th to pass through the ring, as soon as both groups have left its place there."""
    STAGES: gl.constexpr = ring.shape[0]
    mbarrier.wait(empty.index(n % STAGES), (n // STAGES & 1) ^ 1)
    mbarrier.expect(full.index(n % STAGES), source.block_type.nbytes)
    tma.async_copy_global_to_shared(source, [b, h, row, 0], full.index(n % STAGES), ring.index(n % STAGES))


@gluon.jit
def fetch_all(k, v, rings, b, h, count, base):
    """Tiles count - 1 .. 0 of k and v in the order in which they are used: k one step ahead of v."""
    k_ring, v_ring, k_full, k_empty, v_full, v_empty = rings
    BLOCK_N: gl.constexpr = k.block_type.shape[2]
    last = (count - 1) * BLOCK_N
    fetch(k, k_ring, k_full, k_empty, b, h, last, base)
    for i in range(1, count):
        fetch(k, k_ring, k_full, k_empty, b, h, last - i * BLOCK_N, base + i)
        fetch(v, v_ring, v_full, v_empty, b, h, last - (i - 1) * BLOCK_N, base + i - 1)
    fetch(v, v_ring, v_full, v_empty, b, h, 0, base + count - 1)


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
def _softmax(
    scores, l, m, scale, positions, start, k_len, CAUSAL: gl.constexpr, MASKED: gl.constexpr, S: gl.constexpr
):  # fmt: skip
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
    acc, l, m, p, query, rings, mine, theirs, positions, first, last, count, base, taken, k_len, scale,
    CAUSAL: gl.constexpr, MASKED: gl.constexpr, S: gl.constexpr, O: gl.constexpr,
):  # fmt: skip
    """Steps first .. last - 1 of a group; p holds the exponentials of the step before, not yet multiplied."""
    k_ring, v_ring, k_full, k_empty, v_full, v_empty = rings
    STAGES: gl.constexpr = k_ring.shape[0]
    BLOCK_N: gl.constexpr = k_ring.shape[3]
    for i in range(first, last):
        n = base + i
        stage, before = n % STAGES, (n - 1) % STAGES
        mbarrier.wait(mine, (taken + i - 1) & 1)
        scores = _scores(query, k_ring, stage, S)
        mbarrier.wait(v_full.index(before), (n - 1) // STAGES & 1)
        acc = _values(p, v_ring, before, acc, O)
        mbarrier.arrive(theirs)
        scores = warpgroup_mma_wait(1, [scores])
        mbarrier.arrive(k_empty.index(stage))
        start = (count - 1 - i) * BLOCK_N
        p, l, m, alpha = _softmax(scores, l, m, scale, positions, start, k_len, CAUSAL, MASKED, S)
        # This wait is early. It ends a basic block, so that exponentials are not scheduled behind the wait for acc.
        mbarrier.wait(k_full.index((n + 1) % STAGES), (n + 1) // STAGES & 1, pred=i + 1 < count)
        acc, p = warpgroup_mma_wait(0, [acc, p])
        mbarrier.arrive(v_empty.index(before))
        acc = acc * gl.convert_layout(alpha, gl.SliceLayout(1, O))[:, None]
    return acc, l, m, p


@gluon.jit
def attend(query, rings, mine, theirs, position, k_len, count, masked, base, taken, scale, CAUSAL: gl.constexpr):
    """The answer `[ROWS, DIM]` of a group, whose first query stands at `position`, over `count` tiles of keys.

    The first `masked` tiles need a mask. base tiles have passed through the rings before, `taken` turns been taken.
    """
    k_ring, v_ring, k_full, k_empty, v_full, v_empty = rings
    STAGES: gl.constexpr = k_ring.shape[0]
    BLOCK_N: gl.constexpr = k_ring.shape[3]
    ROWS: gl.constexpr = query.shape[0]
    DIM: gl.constexpr = query.shape[1]
    S: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_N, 16])
    O: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, DIM, 16])
    positions = position + gl.arange(0, ROWS, gl.SliceLayout(1, S))
    acc = gl.zeros([ROWS, DIM], gl.float32, O)
    l = gl.zeros([ROWS], gl.float32, gl.SliceLayout(1, S))
    m = gl.full([ROWS], FLOOR, gl.float32, gl.SliceLayout(1, S))

    mbarrier.wait(k_full.index(base % STAGES), base // STAGES & 1)
    scores = warpgroup_mma_wait(0, [_scores(query, k_ring, base % STAGES, S)])
    mbarrier.arrive(k_empty.index(base % STAGES))
    p, l, m, _ = _softmax(scores, l, m, scale, positions, (count - 1) * BLOCK_N, k_len, CAUSAL, True, S)
    mbarrier.wait(k_full.index((base + 1) % STAGES), (base + 1) // STAGES & 1, pred=count > 1)
    acc, l, m, p = _steps(
        acc, l, m, p, query, rings, mine, theirs, positions, 1, masked, count, base, taken, k_len, scale,
        CAUSAL, True, S, O,
    )  # fmt: skip
    acc, l, m, p = _steps(
        acc, l, m, p, query, rings, mine, theirs, positions, masked, count, count, base, taken, k_len, scale,
        CAUSAL, False, S, O,
    )  # fmt: skip
    last = base + count - 1
    mbarrier.wait(v_full.index(last % STAGES), last // STAGES & 1)
    acc = warpgroup_mma_wait(0, [_values(p, v_ring, last % STAGES, acc, O)])
    mbarrier.arrive(v_empty.index(last % STAGES))
    return acc / gl.convert_layout(l, gl.SliceLayout(1, O))[:, None]


@gluon.jit
def barriers(n: gl.constexpr, arrivals: gl.constexpr):
    """n mbarriers, each of which waits for `arrivals`."""
    bars = gl.allocate_shared_memory(gl.int64, [n, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(n):
        mbarrier.init(bars.index(i), count=arrivals)
    return bars


def described(x: torch.Tensor, rows: int) -> TensorDescriptor:
    """A descriptor of x `[B, H, T, D]`, float16 or bfloat16, with blocks `[1, 1, rows, D]`."""
    block = [1, 1, rows, x.shape[3]]
    element = gl.bfloat16 if x.dtype == torch.bfloat16 else gl.float16
    return TensorDescriptor.from_tensor(x, block, gl.NVMMASharedLayout.get_default_for(block, element))
