"""A linear layer for one to four tokens, with what stands before and behind it in the same launch.

    y[t, n] = sum over k of x[t, k] weight[n, k],   then  + bias[n],  or  SiLU(y of gate n) * (y of up n),  + residual

With so few tokens a GEMM is a stream of weights: 2 N K bytes for 2 T N K FLOPs, and tensor cores have nothing to gain.
A program takes BLOCK_N rows of the weight (of both halves where gate and up are stacked), multiplies them by the token
in registers and sums once, at the end. RMSNorm before the product costs no pass of its own, for its scale is one
factor a token and comes out of the sum:

    sum over k of (x[k] s g[k]) w[k]  =  s  sum over k of (x[k] g[k]) w[k],    s = rsqrt(mean(x^2) + eps)

A program asks for its next tile of weights before it multiplies the last one, and for its first before anything else.
With OVERLAP (early_start.py) that is while the kernel before it still runs.

Invariant: each weight is read once and nothing but the answer is written. It loses from about two tokens on, where
multiplying outside the tensor cores takes longer than the weights take to come.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from .activations import silu
from .early_start import begin, launch_options


@triton.jit
def _tile(weight, n, k, inside, K: tl.constexpr):
    return tl.load(weight + n * K + k, mask=inside, other=0.0, eviction_policy="evict_first")


@triton.jit
def _skinny_linear(
    out, x, weight, bias, gain, residual, eps,
    TOKENS: tl.constexpr, ROWS: tl.constexpr, N: tl.constexpr, K: tl.constexpr, GATED: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, STAGES: tl.constexpr, OVERLAP: tl.constexpr,
):  # fmt: skip
    """BLOCK_N outputs of all tokens; tensors are [tokens, outputs, inputs]. N counts outputs: half the weight if GATED.

    ROWS is the power of two that holds TOKENS.
    """
    token = tl.arange(0, ROWS)[:, None, None]
    n = (tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)).to(tl.int64)[None, :, None]
    real, there = token < TOKENS, n < N
    sums = tl.zeros([ROWS, BLOCK_N, BLOCK_K], tl.float32)
    ups = tl.zeros([ROWS, BLOCK_N, BLOCK_K], tl.float32) if GATED else 0.0
    squares = tl.zeros([ROWS, 1, BLOCK_K], tl.float32)
    k = tl.arange(0, BLOCK_K)[None, None, :]
    w = _tile(weight, n, k, there & (k < K), K)
    u = _tile(weight, n + N, k, there & (k < K), K) if GATED else 0.0
    begin(OVERLAP)
    for start in tl.range(0, K, BLOCK_K, num_stages=STAGES):
        k = start + tl.arange(0, BLOCK_K)[None, None, :]
        ahead = k + BLOCK_K
        next_w = _tile(weight, n, ahead, there & (ahead < K), K)
        next_u = _tile(weight, n + N, ahead, there & (ahead < K), K) if GATED else 0.0
        h = tl.load(x + token * K + k, mask=real if K % BLOCK_K == 0 else real & (k < K), other=0.0).to(tl.float32)
        if gain is not None:
            squares += h * h
            h *= tl.load(gain + k, mask=k < K, other=0.0).to(tl.float32)
        sums += w.to(tl.float32) * h
        if GATED:
            ups += u.to(tl.float32) * h
        w, u = next_w, next_u

    scale = tl.rsqrt(tl.sum(squares, axis=2, keep_dims=True) / K + eps) if gain is not None else 1.0
    y = tl.sum(sums, axis=2, keep_dims=True) * scale
    if bias is not None:
        y += tl.load(bias + n, mask=there, other=0.0).to(tl.float32)
    if GATED:
        up = tl.sum(ups, axis=2, keep_dims=True) * scale
        if bias is not None:
            up += tl.load(bias + N + n, mask=there, other=0.0).to(tl.float32)
        y = silu(y) * up
    at = token * N + n
    if residual is not None:
        y += tl.load(residual + at, mask=real & there, other=0.0).to(tl.float32)
    tl.store(out + at, y.to(out.dtype.element_ty), mask=real & there)


def skinny_linear(
    out: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, gain: torch.Tensor | None,
    residual: torch.Tensor | None, eps: float, gated: bool, block_n: int, block_k: int, num_warps: int, stages: int,
    overlap: bool,
) -> None:  # fmt: skip
    """Launch: out `[T, N]`, x `[T, K]`, weight `[N, K]` (`[2 N, K]` if gated, gates first), bias as its rows, gain
    `[K]` of an RMSNorm before, residual `[T, N]`; contiguous, one dtype; powers of two block_n and block_k, `stages`
    tiles on their way at once; overlap needs compute capability 9.0. Checks nothing: see `labllm.fusion`.
    """
    (tokens, inputs), outputs = x.shape, out.shape[1]
    _skinny_linear[(triton.cdiv(outputs, block_n),)](
        out, x, weight, bias, gain, residual, eps,
        TOKENS=tokens, ROWS=triton.next_power_of_2(tokens), N=outputs, K=inputs, GATED=gated, BLOCK_N=block_n,
        BLOCK_K=block_k, STAGES=stages, OVERLAP=overlap, num_warps=num_warps,
        **launch_options(overlap),
    )  # fmt: skip
