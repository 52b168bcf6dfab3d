"""y = W x for one token, W in four bits, on the CUDA cores: a product with one column needs no matrix unit.

A program takes STRIPS strips of 16 rows; its warps share out K, a block of 64 columns each, and add up at the end. A
lane holds 16 columns of two rows of each strip (the order of int4_words.py) and multiplies in float32, so the 16
numbers of x that it loads and converts serve all its rows. What counts is instructions a weight, for a GPU can issue
about four in the time in which it reads half a byte. Each number must become a float32, and that is nearly free in
bfloat16, which is the upper half of a float32:

    both = ((word >> 4 i) & 0x000f000f) | 0x43004300      two bfloat16, 128 + q each
    both << 16                                            128 + q of the low half: one shift
    both                                                  128.26 + q of the high half: nothing at all

The second is the word itself, read as float32: what lies in its low half adds 0x4300 / 65536, which is subtracted with
the 128 and the zero point from the whole sum, and q_low / 65536, at most 0.0003, which is not. x's own dtype does not
matter: it is made float32 as well.

Cost: N K / 2 bytes and scales once; about four instructions a weight, of which multiplying is one. It loses against
tensor cores, which take the multiplications off these instructions, where the GPU has them to spare.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from .int4_words import BLOCK, MAGIC, WORDS, half

LOW, HIGH = tl.constexpr(128.0), tl.constexpr(128.0 + 0x4300 / 65536)


@triton.jit
def _low(both):
    return (both << 16).to(tl.float32, bitcast=True)


@triton.jit
def _high(both):
    return both.to(tl.float32, bitcast=True)


@triton.jit
def _two(pairs, DTYPE: tl.constexpr):
    """Both numbers of int32 words in float32."""
    return half(pairs, DTYPE).to(tl.float32), half(pairs >> 16, DTYPE).to(tl.float32)


@triton.jit
def _int4_gemv(
    y, x, words, scales, zeros, magic, N, K, stride,
    GROUP: tl.constexpr, HAS_ZEROS: tl.constexpr, DTYPE: tl.constexpr, STRIPS: tl.constexpr, COLUMNS: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    KB: tl.constexpr = COLUMNS // 64
    block, strip = tl.program_id(0) * STRIPS // 4, tl.program_id(0) * STRIPS % 4
    e = tl.arange(0, STRIPS * KB * 128)
    w_at = words + block.to(tl.int64) * (K // BLOCK * WORDS) + (e // 128 % KB) * WORDS
    w_at += (strip + e // 128 // KB) * 128 + e % 128
    kb = tl.arange(0, KB)
    lane = tl.arange(0, 4)[None, None, None, :, None] + tl.arange(0, 4)[None, None, None, None, :] * 8
    x_at = x + kb[None, :, None, None, None] * 32 + lane  # x in words of two numbers
    n = tl.program_id(0) * (STRIPS * 16) + tl.arange(0, STRIPS)[:, None] * 16 + tl.arange(0, 8)[None, :]
    upper = tl.zeros([STRIPS, KB, 8, 4], tl.float32)
    lower = tl.zeros([STRIPS, KB, 8, 4], tl.float32)
    for step in tl.range(0, tl.cdiv(K, COLUMNS), num_stages=STAGES):
        there = step * KB + kb < K // BLOCK
        w = tl.load(w_at + step * (KB * WORDS), mask=step * KB + e // 128 % KB < K // BLOCK, other=0)
        w = tl.reshape(w, [STRIPS, KB, 8, 4, 4])
        inside = there[None, :, None, None, None]
        x0, x1 = _two(tl.load(x_at + step * (KB * 32), mask=inside, other=0), DTYPE)
        x8, x9 = _two(tl.load(x_at + step * (KB * 32) + 4, mask=inside, other=0), DTYPE)
        group = (step * KB + kb) * 64 // GROUP
        at = group[None, :, None] * stride + n[:, None, :]
        rows = there[None, :, None] & (n < stride)[:, None, :]
        scale = tl.load(scales + at, mask=rows, other=0).to(tl.float32)[:, :, :, None]
        scale_8 = tl.load(scales + at + 8, mask=rows, other=0).to(tl.float32)[:, :, :, None]
        a = (w & 0x000F000F) | magic
        b = ((w >> 4) & 0x000F000F) | magic
        c = ((w >> 8) & 0x000F000F) | magic
        d = ((w >> 12) & 0x000F000F) | magic
        dot = tl.sum(_low(a) * x0 + _high(a) * x1 + _low(c) * x8 + _high(c) * x9, 4)
        dot_8 = tl.sum(_low(b) * x0 + _high(b) * x1 + _low(d) * x8 + _high(d) * x9, 4)
        if HAS_ZEROS:
            added = tl.sum((x0 + x8) * LOW + (x1 + x9) * HIGH, 4)
            all_x = tl.sum(x0 + x8 + x1 + x9, 4)
            zero = tl.load(zeros + at, mask=rows, other=0).to(tl.float32)[:, :, :, None]
            zero_8 = tl.load(zeros + at + 8, mask=rows, other=0).to(tl.float32)[:, :, :, None]
            upper += (dot - added - zero * all_x) * scale
            lower += (dot_8 - added - zero_8 * all_x) * scale_8
        else:
            added = tl.sum((x0 + x8) * (LOW + 8) + (x1 + x9) * (HIGH + 8), 4)
            upper += (dot - added) * scale
            lower += (dot_8 - added) * scale_8
    tl.store(y + n, tl.sum(tl.sum(upper, 3), 1).to(DTYPE), mask=n < N)
    tl.store(y + n + 8, tl.sum(tl.sum(lower, 3), 1).to(DTYPE), mask=n + 8 < N)


_TRITON = {torch.bfloat16: tl.bfloat16, torch.float16: tl.float16}


def int4_gemv(
    y: torch.Tensor,
    x: torch.Tensor,
    words: torch.Tensor,
    scales: torch.Tensor,
    zeros: torch.Tensor | None,
    group_size: int,
    strips: int,
    columns: int,
    num_warps: int,
    num_stages: int,
) -> None:
    """Launch: y `[N]`, x `[K]`, both contiguous; words as in int4_words.py; scales and zeros `[K / group_size, Np]`,
    Np, N rounded up to 64; group_size a multiple of 64; strips 1, 2 or 4, columns 64 for each warp. Checks nothing:
    see `labllm.quantization.int4`.
    """
    outputs = y.shape[0]
    _int4_gemv[(triton.cdiv(outputs, 16 * strips),)](
        y, x.view(torch.int32), words, scales, zeros, MAGIC[torch.bfloat16], outputs, x.shape[0], scales.stride(0),
        GROUP=group_size, HAS_ZEROS=zeros is not None, DTYPE=_TRITON[x.dtype], STRIPS=strips, COLUMNS=columns,
        STAGES=num_stages, num_warps=num_warps,
    )  # fmt: skip
