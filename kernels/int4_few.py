"""y = x W^T for one to four tokens, W in four bits: all words on their way at once, then tensor cores.

One token makes a matrix product a stream of weights. Multiplying on the CUDA cores takes four instructions a weight
(int4_gemv.py), and they set the pace, not the memory. A tensor core takes 16 rows and 16 columns of words as they lie
(int4_words.py) in one instruction, beside eleven that make numbers of eight weights: 1.5 a weight.

Triton's `tl.dot` shares out rows among warps. Here a strip of 16 rows belongs to all warps of a program, which share
out K, so a program needs nobody else's sums: no partial sums in memory, no counters, no second launch. So the
instruction is named itself, mma.sync, in Gluon, where the layout of a tensor over lanes and registers is written down.

The instruction has eight columns and one token fills one. The others hold further blocks of x: column n that of block
n, so that eight registers a lane keep x for 512 columns. A block of weights is multiplied by all eight, and one column
is kept. That matters because a GPU answers a multiprocessor's loads in order: a number of x asked for behind the words,
even from the cache, waits for memory as they do. So x and the scales are asked for once, before most of the words.

What stands before and behind the product joins it (skinny_linear.py says why it may): RMSNorm of one token, whose sum
of squares is one more product, of x with itself; SiLU(gate) * up of two strips; bias, and the residual. The first turn
of words is asked for before the kernel in front has ended (OVERLAP): no kernel writes weights.

Cost: N K / 2 bytes and scales once. Compute capability 8.0 or newer. Invariant: whoever waits for this kernel has
waited for those before it. It loses where x does not fit into registers any more: more tokens, or very long rows.
"""

from __future__ import annotations

import torch
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy

from .int4_ptx import LESS, NAMES, multiplied, products, squares


@gluon.jit
def _times(a, b, TEXT: gl.constexpr):
    return gl.inline_asm_elementwise(TEXT, "=r,r,r", [a, b], dtype=gl.int32, is_pure=True, pack=1)


@gluon.jit
def _early():
    """The next kernel may start; what the kernels before wrote can be read from here on."""
    text: gl.constexpr = "griddepcontrol.launch_dependents; griddepcontrol.wait; // $0"
    gl.inline_asm_elementwise(text, "=r", [], dtype=gl.int32, is_pure=False, pack=1)


@gluon.jit
def _asked():
    """What was asked for above is on its way: without this the assembler puts requests off to where they are used."""
    gl.inline_asm_elementwise("bar.warp.sync 0xffffffff; // $0", "=r", [], dtype=gl.int32, is_pure=False, pack=1)


@gluon.jit
def _fetch(ring, w_at, block, turn: gl.constexpr, TURN: gl.constexpr, BLOCKS: gl.constexpr):
    """Ask for the words of a turn, each lane for those that it will read."""
    DEPTH: gl.constexpr = ring.shape[0]
    there = block < BLOCKS - turn * TURN if BLOCKS % TURN else None
    async_copy.async_copy_global_to_shared(ring.index(turn % DEPTH), w_at + turn * (TURN * 512), mask=there)
    async_copy.commit_group()


@gluon.jit
def _axes(S: gl.constexpr, Q: gl.constexpr, C: gl.constexpr, T: gl.constexpr, LAST: gl.constexpr, L: gl.constexpr):
    """The five indices of a tensor `[S, Q, C, T, LAST]` in layout L."""
    ABCD: gl.constexpr = gl.SliceLayout(4, L)
    ABC: gl.constexpr = gl.SliceLayout(3, ABCD)
    AB: gl.constexpr = gl.SliceLayout(2, ABC)
    s = gl.arange(0, S, gl.SliceLayout(1, AB))[:, None, None, None, None]
    q = gl.arange(0, Q, gl.SliceLayout(0, AB))[None, :, None, None, None]
    c = gl.arange(0, C, gl.SliceLayout(0, gl.SliceLayout(1, ABC)))[None, None, :, None, None]
    t = gl.arange(0, T, gl.SliceLayout(0, gl.SliceLayout(1, gl.SliceLayout(2, ABCD))))[None, None, None, :, None]
    E: gl.constexpr = gl.SliceLayout(1, gl.SliceLayout(2, gl.SliceLayout(3, L)))
    w = gl.arange(0, LAST, gl.SliceLayout(0, E))[None, None, None, None, :]
    return s, q, c, t, w


@gluon.jit
def _strip(s, rows, stride, GATED: gl.constexpr, STRIPS: gl.constexpr):
    """Which strip of 16 rows is strip s of this program: gates and ups in turn where GATED, `rows` apart."""
    place = s // 2 + s % 2 * (rows // 16) if GATED else s
    return gl.minimum(gl.program_id(0) * STRIPS + place, stride // 16 - 1)


@gluon.jit
def _of_groups(
    values, block, row, stride,
    GROUP: gl.constexpr, TURN: gl.constexpr, TURNS: gl.constexpr, BLOCKS: gl.constexpr,
):  # fmt: skip
    """Scales or zero points of all turns, a tensor each; of none where there are none."""
    all_turns = ()
    if values is not None:
        for turn in gl.static_range(TURNS):
            at = values + (turn * TURN + block) * 64 // GROUP * stride + row
            all_turns = all_turns + (gl.load(at, mask=block < BLOCKS - turn * TURN, other=0),)  # noqa: RUF005
    return all_turns


@gluon.jit
def _of_turns(at, block, TURN: gl.constexpr, TURNS: gl.constexpr, BLOCKS: gl.constexpr):
    """Pairs of x or of the gain of all turns, a tensor each."""
    all_turns = ()
    for turn in gl.static_range(TURNS):
        there = block < BLOCKS - turn * TURN
        all_turns = all_turns + (gl.load(at + turn * (TURN * 32), mask=there, other=0),)  # noqa: RUF005
    return all_turns


@gluon.jit
def _of_blocks(pairs, C: gl.constexpr, PAIR: gl.constexpr):
    """Values of groups `[S, Q, groups, T, 2]` -> of their blocks `[S, Q, C, T, 2]`."""
    if pairs.shape[2] == C:
        return pairs
    else:
        wide = gl.permute(gl.join(pairs, pairs), [0, 1, 2, 5, 3, 4])
        shape: gl.constexpr = [pairs.shape[0], pairs.shape[1], C, pairs.shape[3], 2]
        return gl.convert_layout(gl.reshape(wide, shape), PAIR, assert_trivial=True)


@gluon.jit
def _int4_few(
    out, x, words, scales, zeros, gain, bias, residual, eps, x_row, stride, N,
    M: gl.constexpr, K: gl.constexpr, GROUP: gl.constexpr, PRODUCTS: gl.constexpr, SQUARES: gl.constexpr,
    TIMES: gl.constexpr, LESS: gl.constexpr, GATED: gl.constexpr, STRIPS: gl.constexpr, SETS: gl.constexpr,
    C: gl.constexpr, DEPTH: gl.constexpr, WARPS: gl.constexpr, OVERLAP: gl.constexpr,
):  # fmt: skip
    """STRIPS strips of 16 rows, of gates and of ups each where GATED; N counts outputs: half the rows if GATED.

    Tensors are [strips, sets, blocks of a set, threads, 4]. The last axis are the words of a lane in one block of 64
    columns, or the four sums that it holds of a product: of row g and columns 2 t and 2 t + 1, then of row g + 8.
    Column n of a product is token n % TOKENS, and block n / TOKENS of a set: the others' are thrown away.
    """
    S: gl.constexpr = STRIPS * 2 if GATED else STRIPS
    T: gl.constexpr = WARPS * 32
    TOKENS: gl.constexpr = 1 if M == 1 else 2 if M == 2 else 4 if M <= 4 else 8
    GROUPS: gl.constexpr = C // 2 if GROUP % 128 == 0 and C > 1 else C  # groups of a set, or more
    L: gl.constexpr = gl.BlockedLayout([S, SETS, C, 1, 4], [1, 1, 1, 32, 1], [1, 1, 1, WARPS, 1], [4, 3, 2, 1, 0])
    PAIR: gl.constexpr = gl.BlockedLayout([S, SETS, C, 1, 2], [1, 1, 1, 32, 1], [1, 1, 1, WARPS, 1], [4, 3, 2, 1, 0])
    FEWER: gl.constexpr = gl.BlockedLayout(
        [S, SETS, GROUPS, 1, 2], [1, 1, 1, 32, 1], [1, 1, 1, WARPS, 1], [4, 3, 2, 1, 0]
    )
    BLOCKS: gl.constexpr = K // 64
    TURN: gl.constexpr = WARPS * SETS * C
    TURNS: gl.constexpr = (BLOCKS + TURN - 1) // TURN

    s, q, c, thread, word = _axes(S, SETS, C, T, 4, L)
    strip, lane, first = _strip(s, N, stride, GATED, STRIPS), thread % 32, (thread // 32 * SETS + q) * C
    block, x_block = first + c, first + gl.minimum(lane // 4 // TOKENS, C - 1)
    w_at = words + (strip // 4).to(gl.int64) * (BLOCKS * 512) + (strip % 4 * 128 + block * 512 + lane * 4 + word)
    x_at = x + gl.minimum(lane // 4 % TOKENS, M - 1) * x_row + x_block * 32 + word * 8 + lane % 4
    mine = (lane % 4 * 2 + word % 2) // TOKENS == c
    s2, q2, group, thread2, eight = _axes(S, SETS, GROUPS, T, 2, FEWER)
    block2 = (thread2 // 32 * SETS + q2) * C + group * (C // GROUPS)
    row2 = _strip(s2, N, stride, GATED, STRIPS) * 16 + thread2 % 32 // 4 + eight * 8

    line: gl.constexpr = gl.SwizzledSharedLayout(4, 1, 1, [4, 3, 2, 1, 0])
    ring = gl.allocate_shared_memory(gl.int32, [DEPTH, S, SETS, C, T, 4], line)
    scale = _of_groups(scales, block2, row2, stride, GROUP, TURN, TURNS, BLOCKS)
    zero = _of_groups(zeros, block2, row2, stride, GROUP, TURN, TURNS, BLOCKS)
    _fetch(ring, w_at, block, 0, TURN, BLOCKS)
    if OVERLAP:
        _early()
    low, high = _of_turns(x_at, x_block, TURN, TURNS, BLOCKS), _of_turns(x_at + 4, x_block, TURN, TURNS, BLOCKS)
    if gain is not None:
        g_at = gain + x_block * 32 + word * 8 + lane % 4
        g_low, g_high = _of_turns(g_at, x_block, TURN, TURNS, BLOCKS), _of_turns(g_at + 4, x_block, TURN, TURNS, BLOCKS)
    _asked()
    for turn in gl.static_range(1, DEPTH):
        _fetch(ring, w_at, block, turn, TURN, BLOCKS)

    sums = gl.zeros([S, T, 4], gl.float32, gl.SliceLayout(1, gl.SliceLayout(2, L)))
    squares = gl.zeros([1, T, 4], gl.float32, gl.SliceLayout(1, gl.SliceLayout(2, L)))
    for turn in gl.static_range(TURNS):
        x_low, x_high = low[turn], high[turn]
        if gain is not None:
            square = gl.inline_asm_elementwise(
                SQUARES, "=f,=f,=f,=f" + ",r" * 8, [x_low, x_high], dtype=gl.float32, is_pure=False, pack=4
            )
            own = (word < 2) & (lane % 4 * 2 + word == lane // 4) & (lane // 4 < C)
            squares += gl.sum(gl.sum(gl.where(own, square, 0.0), 2), 1)
            x_low, x_high = _times(x_low, g_low[turn], TIMES), _times(x_high, g_high[turn], TIMES)
        async_copy.wait_group(DEPTH - 1 if turn + DEPTH <= TURNS else TURNS - 1 - turn)
        w = ring.index(turn % DEPTH).load(L)
        if zeros is None:
            part = gl.inline_asm_elementwise(
                PRODUCTS, "=f,=f,=f,=f" + ",r" * 12, [w, x_low, x_high], dtype=gl.float32, is_pure=False, pack=4
            )
        else:
            row_zero, row_zero_8 = gl.split(_of_blocks(zero[turn].to(gl.int32) * 0x10001 | LESS, C, PAIR))
            less = gl.convert_layout(row_zero, gl.SliceLayout(4, L), assert_trivial=True)[:, :, :, :, None]
            less_8 = gl.convert_layout(row_zero_8, gl.SliceLayout(4, L), assert_trivial=True)[:, :, :, :, None]
            part = gl.inline_asm_elementwise(
                PRODUCTS, "=f,=f,=f,=f" + ",r" * 20, [w, x_low, x_high, less, less_8],
                dtype=gl.float32, is_pure=False, pack=4,
            )  # fmt: skip
        pairs = _of_blocks(scale[turn], C, PAIR)
        each = gl.convert_layout(gl.reshape(gl.join(pairs, pairs), [S, SETS, C, T, 4]), L, assert_trivial=True)
        sums += gl.sum(gl.sum(part * gl.where(mine, each.to(gl.float32), 0.0), 2), 1)
        if turn + DEPTH < TURNS:
            _fetch(ring, w_at, block, turn + DEPTH, TURN, BLOCKS)

    by_column = gl.permute(gl.sum(gl.reshape(sums, [S, WARPS, 8, 4, 2, 2]), 1), [0, 3, 1, 2, 4])
    y = gl.sum(gl.reshape(by_column, [S, 16, 8 // TOKENS, TOKENS]), 2)
    y = gl.convert_layout(y, gl.BlockedLayout([2 if GATED else 1, 1, 1], [1, 16, 2], [1, 1, WARPS], [2, 1, 0]))
    if gain is not None:
        y *= gl.rsqrt(gl.sum(gl.sum(gl.sum(squares, 2), 1), 0) / K + eps)
    OUT: gl.constexpr = gl.BlockedLayout([1, 1, 1], [1, 16, 2], [1, 1, WARPS], [2, 1, 0])
    strips = gl.program_id(0) * STRIPS + gl.arange(0, STRIPS, gl.SliceLayout(1, gl.SliceLayout(2, OUT)))[:, None, None]
    n = strips * 16 + gl.arange(0, 16, gl.SliceLayout(0, gl.SliceLayout(2, OUT)))[None, :, None]
    m = gl.arange(0, TOKENS, gl.SliceLayout(0, gl.SliceLayout(1, OUT)))[None, None, :]
    inside = (n < N) & (m < M)
    if GATED:
        gate, up = gl.split(gl.permute(gl.reshape(y, [STRIPS, 2, 16, TOKENS]), [0, 2, 3, 1]))
        gate, up = gl.convert_layout(gate, OUT), gl.convert_layout(up, OUT)
        if bias is not None:
            gate += gl.load(bias + n, mask=n < N, other=0.0).to(gl.float32)
            up += gl.load(bias + N + n, mask=n < N, other=0.0).to(gl.float32)
        y = gate / (1 + gl.exp(-gate)) * up
    else:
        y = gl.convert_layout(y, OUT)
        if bias is not None:
            y += gl.load(bias + n, mask=n < N, other=0.0).to(gl.float32)
    at = m.to(gl.int64) * N + n
    if residual is not None:
        y += gl.load(residual + at, mask=inside, other=0.0).to(gl.float32)
    gl.store(out + at, y.to(out.dtype.element_ty), mask=inside)


def int4_few(
    out: torch.Tensor, x: torch.Tensor, words: torch.Tensor, scales: torch.Tensor, zeros: torch.Tensor | None,
    group_size: int, gain: torch.Tensor | None, eps: float, gated: bool, bias: torch.Tensor | None,
    residual: torch.Tensor | None, strips: int, sets: int, blocks: int, num_warps: int, depth: int,
    registers: int | None, overlap: bool,
) -> None:  # fmt: skip
    """Launch: out `[M, N]` contiguous, M in 1 .. 4, x `[M, K]` with rows of stride 1; words as in int4_words.py, scales
    and zeros `[K / group_size, Np]`, Np, the rows rounded up to 64; rows N, or 2 N if gated, gates first, N then a
    multiple of 16; gain `[K]` of an RMSNorm before, for one token in bfloat16; bias as the rows, residual `[M, N]`.
    strips, sets, blocks and num_warps powers of two, blocks times tokens up to 8; depth turns on their way at once;
    overlap needs compute capability 9.0. Checks nothing: see `labllm.quantization.few`.
    """
    (tokens, outputs), columns, name = out.shape, x.shape[1], NAMES[x.dtype]
    x_pairs, gain_pairs = (None if t is None else t.view(torch.int32) for t in (x, gain))
    depth = min(depth, triton.cdiv(columns // 64, sets * blocks * num_warps))
    _int4_few[(triton.cdiv(outputs, 16 * strips),)](
        out, x_pairs, words, scales, zeros, gain_pairs, bias, residual, eps, x.stride(0) // 2, scales.stride(0),
        outputs, M=tokens, K=columns, GROUP=group_size, PRODUCTS=products(name, zeros is not None),
        SQUARES=squares(name), TIMES=multiplied(name), LESS=LESS[name], GATED=gated, STRIPS=strips, SETS=sets,
        C=blocks, DEPTH=depth, WARPS=num_warps, OVERLAP=overlap, num_warps=num_warps,
        **({"launch_pdl": True} if overlap else {}), **({"maxnreg": registers} if registers else {}),
    )  # fmt: skip
