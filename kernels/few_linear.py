"""A linear layer for some tens of tokens: tensor cores fed by a stream of weights.

    y^T[n, t] = sum over k of weight[n, k] x[t, k]

Up to about a hundred tokens a product still waits for its weights, yet outside the tensor cores it would wait for its
arithmetic. So the weight is the left operand, in tiles of BLOCK_N rows as tensor cores want them, and the tokens,
padded to ROWS, are the narrow right one. A program a tile would leave processors without work where N is small, so
SPLIT programs share its inputs: each leaves its part in `partial`, and whoever arrives last sums the parts in order and
writes the answer, as kernels/split_decode_once.py does. OVERLAP is that of skinny_linear.py, without weights asked for
ahead.

Invariant: each weight is read once; `arrivals` is zero before and after; the sum's order does not depend on who is
last. It loses to skinny_linear.py for up to four tokens and to a GEMM with large tiles where tokens make the product
wait for its arithmetic.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from .activations import silu


@triton.jit
def _products(
    x, weight, n, token, first, last, TOKENS: tl.constexpr, ROWS: tl.constexpr, N: tl.constexpr, K: tl.constexpr,
    GATED: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Products over the inputs first .. last: `[BLOCK_N, ROWS]` of the weight, and of its second half where GATED."""
    sums = tl.zeros([BLOCK_N, ROWS], tl.float32)
    ups = tl.zeros([BLOCK_N, ROWS], tl.float32)
    there, real = (n < N)[:, None], (token < TOKENS)[:, None]
    row = weight + n[:, None] * K
    for start in tl.range(first, last, BLOCK_K, num_stages=STAGES):
        k = start + tl.arange(0, BLOCK_K)[None, :]
        w = tl.load(row + k, mask=there & (k < K), other=0.0, eviction_policy="evict_first")
        h = tl.trans(tl.load(x + token[:, None] * K + k, mask=real & (k < K), other=0.0))
        sums = tl.dot(w, h, sums, input_precision="ieee")
        if GATED:
            u = tl.load(row + N * K + k, mask=there & (k < K), other=0.0, eviction_policy="evict_first")
            ups = tl.dot(u, h, ups, input_precision="ieee")
    return sums, ups


@triton.jit
def _few_linear(
    out, partial, arrivals, x, weight, bias,
    TOKENS: tl.constexpr, ROWS: tl.constexpr, N: tl.constexpr, K: tl.constexpr, GATED: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, SPLIT: tl.constexpr, STAGES: tl.constexpr, OVERLAP: tl.constexpr,
):  # fmt: skip
    """BLOCK_N outputs of all tokens, one of SPLIT shares of the inputs. N counts outputs: half the weight if GATED."""
    tile, share = tl.program_id(0), tl.program_id(1)
    n = (tile * BLOCK_N + tl.arange(0, BLOCK_N)).to(tl.int64)
    token = tl.arange(0, ROWS)
    each: tl.constexpr = (K + SPLIT * BLOCK_K - 1) // (SPLIT * BLOCK_K) * BLOCK_K
    if OVERLAP:
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()
    sums, ups = _products(
        x, weight, n, token, share * each, tl.minimum(share * each + each, K), TOKENS, ROWS, N, K, GATED, BLOCK_N,
        BLOCK_K, STAGES,
    )  # fmt: skip
    if SPLIT > 1:
        HALVES: tl.constexpr = 2 if GATED else 1
        inner = tl.arange(0, BLOCK_N)[:, None] * ROWS + token[None, :]
        room = partial + tile.to(tl.int64) * (SPLIT * HALVES * BLOCK_N * ROWS)
        mine = room + share * (HALVES * BLOCK_N * ROWS) + inner
        tl.store(mine, sums)
        if GATED:
            tl.store(mine + BLOCK_N * ROWS, ups)
        tl.debug_barrier()
        if tl.atomic_add(arrivals + tile, 1, sem="acq_rel") != SPLIT - 1:
            return
        tl.debug_barrier()
        sums = tl.zeros([BLOCK_N, ROWS], tl.float32)
        ups = tl.zeros([BLOCK_N, ROWS], tl.float32)
        for s in range(SPLIT):
            part = room + s * (HALVES * BLOCK_N * ROWS) + inner
            sums += tl.load(part, cache_modifier=".cg")
            if GATED:
                ups += tl.load(part + BLOCK_N * ROWS, cache_modifier=".cg")
        tl.store(arrivals + tile, 0)
    there = (n < N)[:, None]
    if bias is not None:
        sums += tl.load(bias + n, mask=n < N, other=0.0).to(tl.float32)[:, None]
    if GATED:
        if bias is not None:
            ups += tl.load(bias + N + n, mask=n < N, other=0.0).to(tl.float32)[:, None]
        sums = silu(sums) * ups
    at = token[None, :].to(tl.int64) * N + n[:, None]
    inside = there & (token < TOKENS)[None, :]
    tl.store(out + at, sums.to(out.dtype.element_ty), mask=inside)


def few_linear(
    out: torch.Tensor, partial: torch.Tensor, arrivals: torch.Tensor, x: torch.Tensor, weight: torch.Tensor,
    bias: torch.Tensor | None, gated: bool, rows: int, block_n: int, block_k: int, split: int, num_warps: int,
    stages: int, overlap: bool,
) -> None:  # fmt: skip
    """Launch: out `[T, N]`, x `[T, K]`, weight `[N, K]` (`[2 N, K]`, gates first, if gated), bias as its rows;
    contiguous, one dtype; room for partial `[tiles, split, 1 or 2, block_n, rows]` float32 and arrivals `[tiles]`
    int32, zero; rows, a power of two of at least 16, holds T; overlap needs compute capability 9.0. Checks nothing: see
    `labllm.fusion`.
    """
    (tokens, inputs), outputs = x.shape, out.shape[1]
    _few_linear[(triton.cdiv(outputs, block_n), split)](
        out, partial, arrivals, x, weight, bias,
        TOKENS=tokens, ROWS=rows, N=outputs, K=inputs, GATED=gated, BLOCK_N=block_n, BLOCK_K=block_k, SPLIT=split,
        STAGES=stages, OVERLAP=overlap, num_warps=num_warps, **({"launch_pdl": True} if overlap else {}),
    )  # fmt: skip
