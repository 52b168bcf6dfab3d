"""y = x W^T with W in four bits, dequantised plainly: fetch a word, shift, mask, convert, subtract, scale.

The stored form is read as it is: a row's inputs side by side, eight to a word. A word is loaded once, its eight codes
are shifted out of it one by one, and an integer becomes a float by conversion, which a GPU does at a quarter of its
rate. Then the tile goes through shared memory into the tensor cores, for its elements lie with the wrong threads.

Cost: half a byte a weight as for int4_linear.py, but some ten instructions a weight, so it is the arithmetic and not
the memory that takes the time. That is the lesson: fewer bytes are worth nothing until dequantising them is cheap. It
loses against a 16-bit GEMM nearly everywhere.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

BLOCK_N, BLOCK_K, NUM_WARPS, NUM_STAGES = 64, 64, 4, 3
BLOCK_M = 16, 64  # for up to 16 rows of x, and more


@triton.jit(do_not_specialize=["M"])
def _int4_plain(
    y, x, qweight, scales, zeros, M, N, K, x_row, GROUP: tl.constexpr, HAS_ZEROS: tl.constexpr, ONE_SCALE: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    DTYPE: tl.constexpr = x.dtype.element_ty
    n = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    m = tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M)
    some, inside = (m < M)[:, None], n < N
    x_at = x + m[:, None].to(tl.int64) * x_row + tl.arange(0, BLOCK_K)[None, :]
    w_at = qweight + n[:, None].to(tl.int64) * (K // 8) + tl.arange(0, BLOCK_K // 8)[None, :]
    s_at = tl.zeros_like(n) if ONE_SCALE else n.to(tl.int64) * (K // GROUP)
    shift = tl.arange(0, 8)[None, None, :] * 4
    acc = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for start in tl.range(0, K, BLOCK_K, num_stages=STAGES):
        x_tile = tl.load(x_at + start, mask=some, other=0.0)
        word = tl.load(w_at + start // 8, mask=inside[:, None], other=0)
        code = tl.reshape((word[:, :, None] >> shift) & 15, [BLOCK_N, BLOCK_K])
        scale = tl.load(scales + s_at + start // GROUP, mask=inside, other=0.0).to(tl.float32)
        zero = tl.load(zeros + s_at + start // GROUP, mask=inside, other=0).to(tl.float32) if HAS_ZEROS else 8.0
        w = (code.to(tl.float32) - (zero[:, None] if HAS_ZEROS else zero)) * scale[:, None]
        acc = tl.dot(x_tile, w.to(DTYPE).T, acc)
    y_at = y + m[:, None].to(tl.int64) * N + n[None, :]
    tl.store(y_at, acc.to(DTYPE), mask=some & inside[None, :])


def int4_plain(
    y: torch.Tensor,
    x: torch.Tensor,
    qweight: torch.Tensor,
    scales: torch.Tensor,
    zeros: torch.Tensor | None,
    group_size: int,
) -> None:
    """Launch: y `[M, N]`, x `[M, K]` with rows of stride 1, and the tensors of a `QuantizedWeight` of 4 bits, all
    contiguous, group_size a multiple of 16. Checks nothing: see `labllm.quantization.int4`.
    """
    (rows, inputs), outputs = x.shape, y.shape[1]
    block_m, block_k = BLOCK_M[rows > BLOCK_M[0]], min(BLOCK_K, group_size & -group_size)
    _int4_plain[(triton.cdiv(outputs, BLOCK_N), triton.cdiv(rows, block_m))](
        y, x, qweight, scales, zeros, rows, outputs, inputs, x.stride(0), GROUP=group_size, HAS_ZEROS=zeros is not None,
        ONE_SCALE=scales.shape[0] == 1 < outputs, BLOCK_M=block_m, BLOCK_N=BLOCK_N, BLOCK_K=block_k, STAGES=NUM_STAGES,
        num_warps=NUM_WARPS,
    )  # fmt: skip
