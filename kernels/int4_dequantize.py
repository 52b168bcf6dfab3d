"""W in 16 bits, written out once from its four-bit words: what a GEMM of many tokens wants.

Above some hundreds of tokens a GEMM is bound by its multiplications, and a library's is hard to beat; dequantising into
its operands again for every tile of tokens costs more than doing it once. A program takes a block of rows and columns,
spreads its words as int4_linear.py does, scales them and writes them row by row.

Cost: N K / 2 bytes read and 2 N K written, that is four times the read; the GEMM reads them again. Done in slabs of
rows that stay in the L2 cache, the second reading costs no memory traffic. It loses below those hundreds of tokens,
where the bytes are all there is to save.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from .int4_words import MAGIC, OFFSET, places, spread

ROWS, COLUMNS, NUM_WARPS = 64, 128, 4


@triton.jit
def _int4_dequantize(
    out, words, scales, zeros, magic, N, K, PADDED,
    OFFSET: tl.constexpr, GROUP: tl.constexpr, HAS_ZEROS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    DTYPE: tl.constexpr = out.dtype.element_ty
    row_tile, column = tl.program_id(0), tl.program_id(1) * COLUMNS
    n, k = row_tile * ROWS + tl.arange(0, ROWS), column + tl.arange(0, COLUMNS)
    w = tl.load(words + places(row_tile, K, ROWS, COLUMNS) + column // 64 * 512)
    at = (k // GROUP)[None, :] * PADDED + n[:, None]
    zero = tl.load(zeros + at).to(DTYPE) if HAS_ZEROS else 8.0
    value = spread(w, magic, DTYPE, ROWS, COLUMNS) - (zero + OFFSET)
    value = value.to(tl.float32) * tl.load(scales + at).to(tl.float32)
    tl.store(out + n[:, None].to(tl.int64) * K + k[None, :], value.to(DTYPE), mask=(n < N)[:, None])


def int4_dequantize(
    out: torch.Tensor, words: torch.Tensor, scales: torch.Tensor, zeros: torch.Tensor | None, group_size: int
) -> None:
    """Launch: out `[N, K]` contiguous, float16 or bfloat16, K a multiple of 64; words as in int4_words.py; scales and
    zeros `[K / group_size, at least N]` with rows of stride 1. Checks nothing: see `labllm.quantization.int4`.
    """
    rows, inputs = out.shape
    columns = COLUMNS if inputs % COLUMNS == 0 else 64
    _int4_dequantize[(triton.cdiv(rows, ROWS), inputs // columns)](
        out, words, scales, zeros, MAGIC[out.dtype], rows, inputs, scales.stride(0), OFFSET=OFFSET[out.dtype],
        GROUP=group_size, HAS_ZEROS=zeros is not None, ROWS=ROWS, COLUMNS=columns, num_warps=NUM_WARPS,
    )  # fmt: skip
