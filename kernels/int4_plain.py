"""y = x W^T with W in four bits, dequantised plainly: fetch a word, shift, mask, convert, subtract, scale.

The stored form is read as it is: a row's inputs side by side, eight to a word. Every element of the tile `[BLOCK_N,
BLOCK_K]` computes its own word's address and its own shift, and an integer becomes a float by conversion, which a GPU
does at a quarter of its rate or less. Then the tile goes through shared memory into the tensor cores, for its elements
lie with the wrong threads.

Cost: half a byte a weight as for int4_linear.py, but some ten instructions a weight, so it is the arithmetic and not
the memory that takes the time. That is the lesson: fewer bytes are worth nothing until dequantising them is cheap. It
loses against a 16-bit GEMM nearly everywhere.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

BLOCK_N, BLOCK_K, NUM_WARPS, NUM_STAGES = 64, 64, 4, 4
BLOCK_M = 16, 64  # for up to 16 rows of x, and more


@triton.jit
def _int4_plain(
    y, x, qweight, scales, zeros, M, N, K, x_row, GROUP: tl.constexpr, HAS_ZEROS: tl.constexpr, ONE_SCALE: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    DTYPE: tl.constexpr = x.dtype.element_ty
    n = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    m = tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M)
    some, inside = (m < M)[:, None], (n < N)[None, :]
    row = tl.zeros_like(n) if ONE_SCALE else n
    acc = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for start in tl.range(0, K, BLOCK_K, num_stages=STAGES):
        k = start + tl.arange(0, BLOCK_K)
        x_tile = tl.load(x + m[:, None].to(tl.int64) * x_row + k[None, :], mask=some & (k < K)[None, :], other=0.0)
        valid = (k < K)[:, None] & inside
        word = tl.load(qweight + n[None, :].to(tl.int64) * (K // 8) + (k // 8)[:, None], mask=valid, other=0)
        code = (word >> (k % 8 * 4)[:, None]) & 15
        at = row[None, :].to(tl.int64) * (K // GROUP) + (k // GROUP)[:, None]
        zero = tl.load(zeros + at, mask=valid, other=0).to(tl.int32) if HAS_ZEROS else 8
        w = (code - zero).to(tl.float32) * tl.load(scales + at, mask=valid, other=0.0).to(tl.float32)
        acc = tl.dot(x_tile, w.to(DTYPE), acc)
    tl.store(y + m[:, None].to(tl.int64) * N + n[None, :], acc.to(DTYPE), mask=some & inside)


def int4_plain(
    y: torch.Tensor,
    x: torch.Tensor,
    qweight: torch.Tensor,
    scales: torch.Tensor,
    zeros: torch.Tensor | None,
    group_size: int,
) -> None:
    """Launch: y `[M, N]`, x `[M, K]` with rows of stride 1, and the tensors of a `QuantizedWeight` of 4 bits, all
    contiguous. Checks nothing: see `labllm.quantization.int4`.
    """
    (rows, inputs), outputs = x.shape, y.shape[1]
    block_m = BLOCK_M[rows > BLOCK_M[0]]
    _int4_plain[(triton.cdiv(outputs, BLOCK_N), triton.cdiv(rows, block_m))](
        y, x, qweight, scales, zeros, rows, outputs, inputs, x.stride(0), GROUP=group_size, HAS_ZEROS=zeros is not None,
        ONE_SCALE=scales.shape[0] == 1 < outputs, BLOCK_M=block_m, BLOCK_N=BLOCK_N, BLOCK_K=BLOCK_K, STAGES=NUM_STAGES,
        num_warps=NUM_WARPS,
    )  # fmt: skip
