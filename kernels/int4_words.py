"""Four-bit weights in the order in which tensor cores take them, and two instructions that make two numbers of a word.

A tensor core takes its left operand from registers: of a block of 16 rows and 16 columns, lane 4 g + t of a warp holds
rows g and g + 8, columns 2 t, 2 t + 1, 2 t + 8 and 2 t + 9. That is eight weights: one 32-bit word. So the words are
stored in the order of the lanes,

    words [N / 64, K / 64, 4 strips of 16 rows, 8 g, 4 t, 4 blocks of 16 columns]

and one 16-byte load a lane brings what four multiplications need, in place: nothing is shuffled, nothing passes through
shared memory. Within a word the nibbles are so placed that a shift, one AND and one OR give two numbers at once:

    ((word >> 4 i) & 0x000f000f) | 0x43004300     two bfloat16: 128 + q in each half
    ((word >> 4 i) & 0x000f000f) | 0x64006400     two float16: 1024 + q

since these exponents make the last bit of the fraction worth one. i = 0, 1, 2, 3 is (row g, low columns), (row g + 8,
low), (g, high), (g + 8, high); low half and high half of a word are two neighbouring columns. Subtracting 128 + zero is
exact. Kim et al. 2022, arXiv:2211.10017, use the trick for float16; Frantar et al. 2024, arXiv:2408.11743, the order.

The magic number is an argument of the kernel and no constant in it: only then does the compiler make AND and OR one
instruction (lop3 takes one constant, not two). It loses where a GPU has no such layout: another order of words then.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

MAGIC = {torch.bfloat16: 0x43004300, torch.float16: 0x64006400}
OFFSET = {torch.bfloat16: 128, torch.float16: 1024}  # what the magic number adds to a code
BLOCK = tl.constexpr(64)  # rows and columns of a block of words
WORDS = tl.constexpr(512)  # words of a block


@triton.jit
def half(both, DTYPE: tl.constexpr):
    """The low 16 bits of int32 words, read as DTYPE."""
    return both.to(tl.int16).to(DTYPE, bitcast=True)


@triton.jit
def _pair(words, magic, SHIFT: tl.constexpr, DTYPE: tl.constexpr):
    both = ((words >> SHIFT) & 0x000F000F) | magic
    return tl.join(half(both, DTYPE), half(both >> 16, DTYPE))


@triton.jit
def spread(words, magic, DTYPE: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Words of COLUMNS / 64 times ROWS / 64 blocks -> offset + code `[ROWS, COLUMNS]` in DTYPE, in registers."""
    low = tl.join(_pair(words, magic, 0, DTYPE), _pair(words, magic, 4, DTYPE))
    high = tl.join(_pair(words, magic, 8, DTYPE), _pair(words, magic, 12, DTYPE))
    each = tl.reshape(tl.join(low, high), [COLUMNS // 64, ROWS // 64, 4, 8, 4, 4, 2, 2, 2])
    # columns / 64, rows / 64, strip, g, t, block, neighbour, row + 8, column + 8
    return tl.reshape(tl.permute(each, [1, 2, 7, 3, 0, 5, 8, 4, 6]), [ROWS, COLUMNS])


@triton.jit
def places(row_tile, K, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Where the words of rows row_tile * ROWS .. and columns 0 .. COLUMNS lie; 512 further for each 64 columns."""
    e = tl.arange(0, ROWS * COLUMNS // 8)
    if ROWS == BLOCK:
        return row_tile.to(tl.int64) * (K // BLOCK * WORDS) + e
    blocks: tl.constexpr = ROWS // 64
    row = row_tile.to(tl.int64) * blocks + e // WORDS % blocks
    return row * (K // BLOCK * WORDS) + e // (WORDS * blocks) * WORDS + e % WORDS


@triton.jit
def fetch_ahead(words, row_tile, first, last, K, ROWS: tl.constexpr, COLUMNS: tl.constexpr, TILES: tl.constexpr):
    """Ask for the words of the first TILES of the tiles first .. last - 1 to come into the L2 cache."""
    if TILES > 0:
        LINE: tl.constexpr = 32  # words of 128 bytes
        RUN: tl.constexpr = TILES * COLUMNS // 64 * 512  # a row of blocks lies in one piece
        line = tl.arange(0, ROWS // 64 * RUN // LINE) * LINE
        row = row_tile.to(tl.int64) * (ROWS // 64) + line // RUN
        run = tl.minimum(line % RUN, (last - first) * (COLUMNS // 64 * 512) - LINE)
        at = words + (row * (K // BLOCK) + first * (COLUMNS // 64)) * WORDS + run
        tl.inline_asm_elementwise(
            "prefetch.global.L2 [$1]; mov.u32 $0, 0;", "=r,l", [at.to(tl.int64)], dtype=tl.int32, is_pure=False, pack=1
        )
