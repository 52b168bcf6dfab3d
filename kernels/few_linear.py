"""A linear layer for some tens of tokens: tensor cores fed by a stream of weights, in one launch with its gate.

    y^T[n, t] = sum over k of weight[n, k] x[t, k],   then  SiLU(y of gate n) * (y of up n),  + bias

Up to about a hundred tokens a product still waits for its weights, yet outside the tensor cores it would wait for its
arithmetic. So the weight is the left operand, in tiles of BLOCK_N rows as tensor cores want them, and the tokens,
padded to ROWS, are the narrow right one. A tile a program would leave multiprocessors without work where outputs are
few, so programs share a tile's inputs and the last of them sums (split_sum.py), where a library launches a second
kernel for that. Gates and ups of the same outputs are multiplied by one program, which then has both in registers.

Cost: N K e bytes, 2 T N K FLOPs on padded tokens. Invariant: each weight is read once; arrivals are zero between
launches, so launches that share them must follow one another. It loses to skinny_linear.py for one token, and to a GEMM
with large tiles where tokens are so many that the product waits for its arithmetic.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from .activations import silu
from .early_start import begin, launch_options
from .split_sum import sum_of_parts


@triton.jit(do_not_specialize=["tokens"])
def _few_linear(
    out, partial, arrivals, x, weight, bias, tokens,
    ROWS: tl.constexpr, N: tl.constexpr, K: tl.constexpr, GATED: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, SPLIT: tl.constexpr, STAGES: tl.constexpr, OVERLAP: tl.constexpr,
):  # fmt: skip
    """BLOCK_N outputs of all tokens, one of SPLIT shares of the inputs. N counts outputs: half the weight if GATED."""
    n = (tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)).to(tl.int64)
    token = tl.arange(0, ROWS)
    there, real = (n < N)[:, None], (token < tokens)[:, None]
    EACH: tl.constexpr = (K + SPLIT * BLOCK_K - 1) // (SPLIT * BLOCK_K) * BLOCK_K
    first = tl.program_id(1) * EACH
    row = weight + n[:, None] * K
    begin(OVERLAP)
    y = tl.zeros([BLOCK_N, ROWS], tl.float32)
    ups = tl.zeros([BLOCK_N, ROWS], tl.float32)
    for start in tl.range(first, tl.minimum(first + EACH, K), BLOCK_K, num_stages=STAGES):
        k = start + tl.arange(0, BLOCK_K)[None, :]
        w = tl.load(row + k, mask=there & (k < K), other=0.0, eviction_policy="evict_first")
        h = tl.trans(tl.load(x + token[:, None] * K + k, mask=real & (k < K), other=0.0))
        y = tl.dot(w, h, y, input_precision="ieee")
        if GATED:
            u = tl.load(row + N * K + k, mask=there & (k < K), other=0.0, eviction_policy="evict_first")
            ups = tl.dot(u, h, ups, input_precision="ieee")
    inside = there & (token < tokens)[None, :]
    if SPLIT > 1:
        y, last_to_arrive = sum_of_parts(partial, arrivals, y, inside)
        inside &= last_to_arrive
    if bias is not None:
        y += tl.load(bias + n, mask=n < N, other=0.0).to(tl.float32)[:, None]
    if GATED:
        if bias is not None:
            ups += tl.load(bias + N + n, mask=n < N, other=0.0).to(tl.float32)[:, None]
        y = silu(y) * ups
    at = token[None, :].to(tl.int64) * N + n[:, None]
    tl.store(out + at, y.to(out.dtype.element_ty), mask=inside)


def few_linear(
    out: torch.Tensor, partial: torch.Tensor | None, arrivals: torch.Tensor, x: torch.Tensor, weight: torch.Tensor,
    bias: torch.Tensor | None, gated: bool, rows: int, block_n: int, block_k: int, split: int, num_warps: int,
    stages: int, overlap: bool,
) -> None:  # fmt: skip
    """Launch: out `[T, N]`, x `[T, K]`, weight `[N, K]` (`[2 N, K]`, gates first, if gated, and then split is 1), bias
    as its rows; contiguous, one dtype; partial `[tiles, split, rows, block_n]` float32 (None without a split), arrivals
    `[tiles]` int32, zero; rows, a power of two of at least 16, holds T; overlap (early_start.py) needs compute
    capability 9.0. Checks nothing: see `labllm.fusion`.
    """
    (tokens, inputs), outputs = x.shape, out.shape[1]
    _few_linear[(triton.cdiv(outputs, block_n), split)](
        out, partial, arrivals, x, weight, bias, tokens,
        ROWS=rows, N=outputs, K=inputs, GATED=gated, BLOCK_N=block_n, BLOCK_K=block_k, SPLIT=split,
        STAGES=stages, OVERLAP=overlap, num_warps=num_warps, **launch_options(overlap),
    )  # fmt: skip
