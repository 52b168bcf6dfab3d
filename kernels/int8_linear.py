"""y = x W^T with weights and activations in INT8 (W8A8): whole numbers through the integer tensor cores.

    y[m, n] = x_scale[m] w_scale[n] sum_k x[m, k] w[n, k]          int8 products summed in int32, exact

Both scales lie outside the sum over k, one a token and one an output channel, so that they are applied once, to the
result, and the inner loop multiplies nothing but whole numbers; that is why W8A8 has no groups along K. As in
int4_linear.py the weights are the left operand, few tokens pad 16 columns and not 64 rows, and K is split where tiles
are few. A T4 has these units, and bfloat16 not.

Cost: N K bytes of weights, and twice the multiplications a second of 16 bits. Invariant: 127 * 127 * K < 2^31, so K up
to 133 000 cannot overflow. It loses to INT4 weights at few tokens, where bytes are all: twice as many.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from .split_sum import sum_of_parts


@triton.jit(do_not_specialize=["M"])
def _int8_linear(
    y, partial, arrivals, x, x_scales, weight, w_scales, M, N, K, SPLIT: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    row_tile, split, splits = tl.program_id(0), tl.program_id(1), tl.num_programs(1)
    m = tl.program_id(2) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = row_tile * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    per_split = tl.cdiv(tl.cdiv(K, BLOCK_K), splits) * BLOCK_K
    first = split * per_split
    x_at = x + m[:, None].to(tl.int64) * K + k[None, :]
    w_at = weight + n[:, None].to(tl.int64) * K + k[None, :]
    acc = tl.zeros([BLOCK_N, BLOCK_M], tl.int32)
    for start in tl.range(first, tl.minimum(first + per_split, K), BLOCK_K, num_stages=STAGES):
        inside = (start + k < K)[None, :]
        w_tile = tl.load(w_at + start, mask=(n < N)[:, None] & inside, other=0)
        x_tile = tl.load(x_at + start, mask=(m < M)[:, None] & inside, other=0)
        acc = tl.dot(w_tile, x_tile.T, acc, out_dtype=tl.int32)
    row = tl.load(x_scales + m, mask=m < M, other=0.0)
    column = tl.load(w_scales + n, mask=n < N, other=0.0)
    inside = (m < M)[None, :] & (n < N)[:, None]
    y_at = y + m[None, :].to(tl.int64) * N + n[:, None]
    if SPLIT:
        acc, last_to_arrive = sum_of_parts(partial, arrivals, acc, inside)
        inside &= last_to_arrive
    scaled = acc.to(tl.float32) * row[None, :] * column[:, None]
    tl.store(y_at, scaled.to(y.dtype.element_ty), mask=inside)


def int8_linear(
    y: torch.Tensor,
    partial: torch.Tensor | None,
    arrivals: torch.Tensor,
    x: torch.Tensor,
    x_scales: torch.Tensor,
    weight: torch.Tensor,
    w_scales: torch.Tensor,
    block_m: int,
    block_n: int,
    block_k: int,
    split: int,
    num_warps: int,
    num_stages: int,
) -> None:
    """Launch: y `[M, N]` floating point, x `[M, K]` and weight `[N, K]` int8, all contiguous; x_scales `[M]`, w_scales
    `[N]` float32; partial `[tiles, split, block_n, block_m]` int32 (None without a split); arrivals int32 `[tiles]`,
    zero. Checks nothing: see `labllm.quantization.eight_bits`.
    """
    (rows, inputs), outputs = x.shape, weight.shape[0]
    _int8_linear[(triton.cdiv(outputs, block_n), split, triton.cdiv(rows, block_m))](
        y, partial, arrivals, x, x_scales, weight, w_scales, rows, outputs, inputs, SPLIT=split > 1, BLOCK_M=block_m,
        BLOCK_N=block_n, BLOCK_K=block_k, STAGES=num_stages, num_warps=num_warps,
    )  # fmt: skip
