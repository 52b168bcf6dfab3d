"""y = x W^T for one token, W in four bits: as many programs as the device holds, and one ring of words for all strips.

One token makes a matrix product a stream of weights. Multiplying on the CUDA cores takes four instructions a weight
(int4_gemv.py), and they set the pace, not the memory. A tensor core takes 16 rows and 16 columns of words as they lie
(int4_words.py) in one instruction, beside eleven that make numbers of eight weights: 1.5 a weight.

A strip of 16 rows belongs to all warps of a program, which share out K, so a program needs nobody else's sums: no
partial sums in memory, no counters, no second launch. Triton's `tl.dot` shares out rows instead, so the instruction is
named itself, mma.sync, in Gluon, where the layout of a tensor over lanes and registers is written down.

A program takes strips pid, pid + G, pid + 2 G .. of the G programs. A program of one strip would read x anew, wait for
its first words with nothing to do and end while its last ones are multiplied: here the words of the next strip are on
their way meanwhile, in the same ring of DEPTH turns, and what is done once is done once for all strips. x lies in
shared memory. The sums of a strip meet at the very end, when no words are waited for any more.

The instruction has eight columns and one token fills one. The others hold further blocks of x: column n that of block
n, so that eight registers a lane keep x for 512 columns. A block of weights is multiplied by all eight, and one column
is kept.

What stands before and behind the product joins it (skinny_linear.py says why it may): RMSNorm, as a factor of the sums
since x times its gain can be multiplied before the norm is known; bias, SiLU(gate) * up of two strips, the residual.
The first AHEAD turns of words are asked for before the kernel in front has ended (OVERLAP): no kernel writes weights.

Cost: N K / 2 bytes and scales once. Compute capability 8.0 or newer. Invariant: whoever waits for this kernel has
waited for those before it. It loses where x does not fit into shared memory: more tokens, or very long rows.
"""

from __future__ import annotations

import torch
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy

from .int4_ptx import NAMES, multiplied, products, totals
from .int4_ring import BLOCKS, ask, by_lane, per_sum

_FLAT = gl.constexpr(gl.SwizzledSharedLayout(1, 1, 1, [1, 0]))
_LINE = gl.constexpr(gl.SwizzledSharedLayout(4, 1, 1, [4, 3, 2, 1, 0]))


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
def _axis(SIZE: gl.constexpr, DIM: gl.constexpr, L: gl.constexpr):
    """0 .. SIZE - 1 along dimension DIM, 2, 3 or 4, of a tensor `[1, 1, BLOCKS, threads, 4]` in layout L."""
    if DIM == 4:
        E: gl.constexpr = gl.SliceLayout(0, gl.SliceLayout(1, gl.SliceLayout(2, gl.SliceLayout(3, L))))
        return gl.arange(0, SIZE, E)[None, None, None, None, :]
    elif DIM == 3:
        T: gl.constexpr = gl.SliceLayout(0, gl.SliceLayout(1, gl.SliceLayout(2, gl.SliceLayout(4, L))))
        return gl.arange(0, SIZE, T)[None, None, None, :, None]
    else:
        C: gl.constexpr = gl.SliceLayout(0, gl.SliceLayout(1, gl.SliceLayout(3, gl.SliceLayout(4, L))))
        return gl.arange(0, SIZE, C)[None, None, :, None, None]


@gluon.jit
def _of_turns(at, block, TURN: gl.constexpr, TURNS: gl.constexpr, LAST: gl.constexpr):
    """Pairs of x or of the gain of all turns, a tensor each."""
    all_turns = ()
    for turn in gl.static_range(TURNS):
        all_turns = all_turns + (gl.load(at + turn * (TURN * 32), mask=block < LAST - turn * TURN, other=0),)  # noqa: RUF005
    return all_turns


@gluon.jit
def _squares(pairs):
    """a^2 + b^2 of pairs (a, b) of bfloat16, which is the upper half of a float32."""
    a, b = (pairs << 16).to(gl.float32, bitcast=True), (pairs & -65536).to(gl.float32, bitcast=True)
    return a * a + b * b


@gluon.jit
def _sum_over(part, SUMS: gl.constexpr):
    """`[1, 1, blocks, T, 4]` -> `[T, 4]`; the sum stays in a lane."""
    return gl.convert_layout(gl.sum(gl.sum(gl.sum(part, 2), 1), 0), SUMS, assert_trivial=True)


@gluon.jit
def _int4_one_token(
    out, x, words, scales, zeros, gain, bias, residual, eps, s_stride, z_stride, N, G,
    K: gl.constexpr, GROUP: gl.constexpr, SCALE: gl.constexpr, PRODUCTS: gl.constexpr, TOTALS: gl.constexpr,
    TIMES: gl.constexpr, GATED: gl.constexpr, MOST: gl.constexpr, DEPTH: gl.constexpr, AHEAD: gl.constexpr,
    WARPS: gl.constexpr, OVERLAP: gl.constexpr,
):  # fmt: skip
    """N counts outputs: half the rows if GATED. SCALE is the scales' dtype; a program takes at most MOST strips.

    Tensors are [1, 1, blocks of a warp, threads, 4]. The last axis are the words of a lane in one block of 64 columns,
    or the four sums that it holds of a product: of row g and columns 2 t and 2 t + 1, then of row g + 8.
    """
    T: gl.constexpr = WARPS * 32
    H: gl.constexpr = 2 if GATED else 1
    TURN: gl.constexpr = WARPS * BLOCKS
    TURNS: gl.constexpr = (K // 64 + TURN - 1) // TURN
    PER: gl.constexpr = 128 if GROUP % 128 == 0 else 64
    L: gl.constexpr = gl.BlockedLayout([1, 1, BLOCKS, 1, 4], [1, 1, 1, 32, 1], [1, 1, 1, WARPS, 1], [4, 3, 2, 1, 0])
    SUMS: gl.constexpr = gl.SliceLayout(0, gl.SliceLayout(1, gl.SliceLayout(2, L)))
    ENTRIES: gl.constexpr = TURN * 64 // PER
    S_WORDS: gl.constexpr = SCALE.primitive_bitwidth // 2  # of 16 rows
    strips_up = (N + 15) // 16
    strips = (strips_up - gl.program_id(0) + G - 1) // G
    count = strips * (H * TURNS)
    c, thread, word = _axis(BLOCKS, 2, L), _axis(T, 3, L), _axis(4, 4, L)
    lane, first = thread % 32, thread // 32 * BLOCKS
    block, x_block = first + c, first + lane // 4
    x_at = x_block * 32 + word * 8 + lane % 4
    at, strides = (words + (block * 512 + lane * 4 + word), scales, zeros), (s_stride, z_stride)
    mine = (lane % 4 * 2 + word % 2) == c

    ring = gl.allocate_shared_memory(gl.int32, [DEPTH, 1, 1, BLOCKS, T, 4], _LINE)
    s_ring = gl.allocate_shared_memory(gl.int32, [DEPTH, ENTRIES, S_WORDS], _FLAT)
    z_ring = s_ring if zeros is None else gl.allocate_shared_memory(gl.int32, [DEPTH, ENTRIES, 4], _FLAT)
    rings = (ring, s_ring, z_ring)
    x_low = gl.allocate_shared_memory(gl.int32, [TURNS, 1, 1, 1, T, 4], _LINE)
    x_high = gl.allocate_shared_memory(gl.int32, [TURNS, 1, 1, 1, T, 4], _LINE)
    y_all = gl.allocate_shared_memory(gl.float32, [MOST * H, WARPS, 16], _FLAT)
    for i in gl.static_range(AHEAD):
        ask(i, count, rings, at, strides, G, strips_up, block, K, GROUP, PER, GATED, WARPS)
    if OVERLAP:
        _early()
    lows = _of_turns(x + x_at, x_block, TURN, TURNS, K // 64)
    highs = _of_turns(x + x_at + 4, x_block, TURN, TURNS, K // 64)
    if gain is not None:
        g_lows = _of_turns(gain + x_at, x_block, TURN, TURNS, K // 64)
        g_highs = _of_turns(gain + x_at + 4, x_block, TURN, TURNS, K // 64)
    OUT: gl.constexpr = gl.BlockedLayout([1, 1], [2, 16], [WARPS, 1], [1, 0])
    j = gl.arange(0, MOST, gl.SliceLayout(1, OUT))[:, None]
    n = (gl.program_id(0) + j * G) * 16 + gl.arange(0, 16, gl.SliceLayout(0, OUT))[None, :]
    inside = (j < strips) & (n < N)
    if residual is not None:
        added = gl.load(residual + n, mask=inside, other=0.0).to(gl.float32)
    _asked()
    for i in gl.static_range(AHEAD, DEPTH):
        ask(i, count, rings, at, strides, G, strips_up, block, K, GROUP, PER, GATED, WARPS)

    squares = gl.zeros([1, 1, 1, T, 4], gl.float32, L)
    for each_turn in gl.static_range(TURNS):
        low, high = lows[each_turn], highs[each_turn]
        if gain is not None:
            squares += _squares(low) + _squares(high)
            low, high = _times(low, g_lows[each_turn], TIMES), _times(high, g_highs[each_turn], TIMES)
        x_low.index(each_turn).store(low)
        x_high.index(each_turn).store(high)

    sums = gl.zeros([T, 4], gl.float32, SUMS)
    for i in range(0, count):
        async_copy.wait_group(DEPTH - 1)
        turn, slot = i % TURNS, i % DEPTH
        w, low, high = ring.index(slot).load(L), x_low.index(turn).load(L), x_high.index(turn).load(L)
        scale = s_ring.index(slot)._reinterpret(SCALE, [ENTRIES, 16], _FLAT).load(by_lane(PER, WARPS)).to(gl.float32)
        if zeros is not None:
            zero = z_ring.index(slot)._reinterpret(gl.uint8, [ENTRIES, 16], _FLAT).load(by_lane(PER, WARPS))
        part = gl.inline_asm_elementwise(
            PRODUCTS, "=f,=f,=f,=f" + ",r" * 12, [w, low, high], dtype=gl.float32, is_pure=False, pack=4
        )
        ask(i + DEPTH, count, rings, at, strides, G, strips_up, block, K, GROUP, PER, GATED, WARPS)
        value = _sum_over(gl.where(mine, part, 0.0), SUMS)
        if zeros is not None:
            total = gl.inline_asm_elementwise(
                TOTALS, "=f,=f,=f,=f" + ",r" * 8, [low, high], dtype=gl.float32, is_pure=False, pack=4
            )
            value -= _sum_over(total, SUMS) * per_sum(zero.to(gl.float32) - 8, PER, WARPS, SUMS)
        sums += value * per_sum(scale, PER, WARPS, SUMS)
        if turn == TURNS - 1:
            rows = gl.sum(gl.sum(gl.reshape(sums, [WARPS, 8, 4, 2, 2]), 4), 2)
            y_all.index(i // TURNS).store(gl.reshape(gl.permute(rows, [0, 2, 1]), [WARPS, 16]))
            sums = gl.zeros([T, 4], gl.float32, SUMS)

    Y: gl.constexpr = gl.BlockedLayout([1, H, WARPS, 1], [2, 1, 1, 16], [WARPS, 1, 1, 1], [3, 2, 1, 0])
    FOUR: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [3, 2, 1, 0])
    y = gl.sum(y_all._reinterpret(gl.float32, [MOST, H, WARPS, 16], FOUR).load(Y), 2)
    if gain is not None:
        y *= gl.rsqrt(gl.sum(gl.sum(gl.sum(gl.sum(gl.sum(squares, 4), 3), 2), 1), 0) / K + eps)
    if GATED:
        gate, up = gl.split(gl.permute(y, [0, 2, 1]))
        gate, up = gl.convert_layout(gate, OUT), gl.convert_layout(up, OUT)
        if bias is not None:
            gate += gl.load(bias + n, mask=inside, other=0.0).to(gl.float32)
            up += gl.load(bias + N + n, mask=inside, other=0.0).to(gl.float32)
        y = gate / (1 + gl.exp(-gate)) * up
    else:
        y = gl.convert_layout(gl.sum(y, 1), OUT)
        if bias is not None:
            y += gl.load(bias + n, mask=inside, other=0.0).to(gl.float32)
    if residual is not None:
        y += added
    gl.store(out + n, y.to(out.dtype.element_ty), mask=inside)


_GLUON = {torch.bfloat16: gl.bfloat16, torch.float16: gl.float16, torch.float32: gl.float32}


def int4_one_token(
    out: torch.Tensor, x: torch.Tensor, words: torch.Tensor, scales: torch.Tensor, zeros: torch.Tensor | None,
    group_size: int, gain: torch.Tensor | None, eps: float, gated: bool, bias: torch.Tensor | None,
    residual: torch.Tensor | None, programs: int, num_warps: int, depth: int, ahead: int, overlap: bool,
) -> None:  # fmt: skip
    """Launch: out `[1, N]`, x `[1, K]`, both contiguous; words as in int4_words.py, scales and zeros
    `[K / group_size, Np]`, Np, the rows rounded up to 64; rows N, or 2 N if gated, gates first, N then a multiple of
    16; gain `[K]` of an RMSNorm before, in bfloat16; bias as the rows, residual `[1, N]`. num_warps 4 or 8; depth turns
    on their way at once, ahead of them asked for early; overlap needs compute capability 9.0. Checks nothing: see
    `labllm.quantization.one_token`.
    """
    outputs, columns, name = out.shape[1], x.shape[1], NAMES[x.dtype]
    strips = triton.cdiv(outputs, 16)
    programs = min(programs, strips)
    most = max(8, triton.next_power_of_2(triton.cdiv(strips, programs)))
    in_words = (None if t is None else t.view(torch.int32) for t in (x, scales, zeros, gain))
    x_words, scale_words, zero_words, gain_words = in_words
    _int4_one_token[(programs,)](
        out, x_words, words, scale_words, zero_words, gain_words, bias, residual, eps, scale_words.stride(0),
        0 if zeros is None else zero_words.stride(0), outputs, programs, K=columns, GROUP=group_size,
        SCALE=_GLUON[scales.dtype], PRODUCTS=products(name), TOTALS=totals(name), TIMES=multiplied(name), GATED=gated,
        MOST=most, DEPTH=depth, AHEAD=min(ahead, depth), WARPS=num_warps, OVERLAP=overlap, num_warps=num_warps,
        **({"launch_pdl": True} if overlap else {}),
    )  # fmt: skip
