"""INT4 weights of strips of 16 rows on their way through a ring in shared memory, for int4_one_token.py.

The items of a program are the turns of its strips, one after another: WARPS * BLOCKS blocks of 64 columns of one strip,
the last turn of a strip perhaps fewer. Item i lies in slot i % DEPTH of each ring:

    words          int32 [DEPTH, 1, 1, BLOCKS, 32 WARPS, 4]; each lane asks for those that it will read
    scales         [DEPTH, entries, 16 rows], an entry for each PER = 128 columns, or 64 where groups need it
    zero points    the same in uint8

Scales travel as the words do, since a GPU answers a multiprocessor's loads in order: a scale asked for behind the
words, even from the cache, waits for memory as they do. cp.async copies at least four bytes, so two scales of 16 bits
or four zero points are one. Cost: groups of more than 128 columns are copied again for each 128. Invariant: an item
past the last one is an empty group of copies, so whoever waits counts groups only.
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy

BLOCKS = gl.constexpr(8)  # blocks of 64 columns that a warp takes a turn: the columns of an instruction


@gluon.constexpr_function
def by_lane(PER, WARPS):
    """Layout of values `[entries, 16 rows]` of a turn: a lane has those of the rows and columns of its sums."""
    bits = 2 if PER == 128 else 3  # entries of a warp: blocks 2 t and 2 t + 1 of lane t share one, or do not
    own, t = [[0, 8]] if PER == 128 else [[0, 8], [1, 0]], [[1 << bit, 0] for bit in range(bits)][-2:]
    warps = [[1 << bits + bit, 0] for bit in range(WARPS.bit_length() - 1)]
    return gl.DistributedLinearLayout(own, [*t, [0, 1], [0, 2], [0, 4]], warps, [], [WARPS << bits, 16])


@gluon.jit
def _ask_groups(
    to, values, stride, strip, turn, PER: gl.constexpr, GROUP: gl.constexpr, GROUPS: gl.constexpr, WARPS: gl.constexpr,
):  # fmt: skip
    """Ask for scales or zero points of a strip in a turn, an entry for each PER columns."""
    ENTRIES: gl.constexpr = to.shape[0]
    WORDS: gl.constexpr = to.shape[1]
    COPY: gl.constexpr = gl.BlockedLayout([1, 1], [32 // WORDS, WORDS], [WARPS, 1], [1, 0])
    entry = gl.arange(0, ENTRIES, gl.SliceLayout(1, COPY))[:, None]
    word = gl.arange(0, WORDS, gl.SliceLayout(0, COPY))[None, :]
    group = gl.minimum((turn * ENTRIES + entry) // (GROUP // PER), GROUPS - 1)
    async_copy.async_copy_global_to_shared(to, values + group * stride + strip * WORDS + word)


@gluon.jit
def ask(
    i, count, rings, at, strides, G, strips_up, block,
    K: gl.constexpr, GROUP: gl.constexpr, PER: gl.constexpr, GATED: gl.constexpr, WARPS: gl.constexpr,
):  # fmt: skip
    """Ask for item i of `count`, a turn of a strip, each lane for the words that it will read.

    Turns of a strip follow one another; where GATED a strip of gates is followed by that of its ups, strips_up on.
    """
    ring, s_ring, z_ring = rings
    w_at, scales, zeros = at
    s_stride, z_stride = strides
    DEPTH: gl.constexpr = ring.shape[0]
    TURN: gl.constexpr = WARPS * BLOCKS
    TURNS: gl.constexpr = (K // 64 + TURN - 1) // TURN
    if i < count:
        turn, j = i % TURNS, i // TURNS
        strip = gl.program_id(0) + (j // 2 * G + j % 2 * strips_up if GATED else j * G)
        offset = (strip // 4).to(gl.int64) * (K // 64 * 512) + (strip % 4 * 128 + turn * (TURN * 512))
        there = block < K // 64 - turn * TURN if K // 64 % TURN else None
        async_copy.async_copy_global_to_shared(ring.index(i % DEPTH), w_at + offset, mask=there)
        _ask_groups(s_ring.index(i % DEPTH), scales, s_stride, strip, turn, PER, GROUP, K // GROUP, WARPS)
        if zeros is not None:
            _ask_groups(z_ring.index(i % DEPTH), zeros, z_stride, strip, turn, PER, GROUP, K // GROUP, WARPS)
    async_copy.commit_group()


@gluon.jit
def per_sum(entries, PER: gl.constexpr, WARPS: gl.constexpr, SUMS: gl.constexpr):
    """Values `[entries, 16]` in the layout `by_lane` -> `[T, 4]`, as the sums of a lane lie; nothing moves."""
    if PER == 128:
        each = gl.permute(gl.reshape(entries, [WARPS, 4, 2, 8]), [0, 3, 1, 2])
        each = gl.join(each, each)
    else:
        each = gl.permute(gl.reshape(entries, [WARPS, 4, 2, 2, 8]), [0, 4, 1, 3, 2])
    return gl.convert_layout(gl.reshape(each, [WARPS * 32, 4]), SUMS, assert_trivial=True)
