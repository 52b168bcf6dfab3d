"""y = x W^T with W in four bits: dequantised in registers on its way into the tensor cores, in one launch.

    y^T [N, M] = W [N, K] x^T [K, M]      W[n, k] = (q[n, k] - zero[n, k / group]) * scale[n, k / group]

The weights are the left operand, which tensor cores take from registers, so they are never written down in 16 bits; x
is the right one, in shared memory. What it costs a weight is half a byte of memory and about two instructions, so:

- AND and OR make two numbers of a word (int4_words.py), one subtraction of the zero point settles two.
- Scales never meet the weights where a tile of K lies in one group: the tile's product `[BLOCK_N, BLOCK_M]` takes
  them, in float32, and not its `[BLOCK_N, BLOCK_K]` weights. A tile of several groups is first scaled relative to its
  first one. That also keeps the tensor cores honest: they read the weights' registers while the program goes on, and
  only who waits for a product may write the next weights there.
- SPLIT: few tokens leave few tiles, and a GPU wants several programs a multiprocessor. So K is cut into ranges, whose
  partial sums the program that finishes last adds up (split_sum.py).
- OVERLAP (compute capability 9.0): the kernel may start while the one before it still runs (NVIDIA, CUDA C++
  Programming Guide, "Programmatic dependent launch and synchronization"). Its weights were written long ago, so it
  asks for its first AHEAD tiles of them to come into the L2 cache, and then waits for x. That pays where programs take
  all places of the device; where places stay free the next kernel's programs crowd on some multiprocessors.

Cost: N K / 2 bytes and scales, once for every BLOCK_M tokens. Invariant: arrivals is zero between launches, so a
captured graph may be replayed, and launches that share it must follow one another; every read of x and every write
comes after the wait. It loses against a 16-bit GEMM where tokens are many: each tile of tokens dequantises the weights
again.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from .int4_words import MAGIC, OFFSET, fetch_ahead, places, spread
from .split_sum import sum_of_parts

LEAST = tl.constexpr(1e-20)  # in place of a scale of zero, by which nothing could be divided


@triton.jit
def _of_groups(values, column, stride, n, GROUP: tl.constexpr, BLOCK_K: tl.constexpr):
    """`[BLOCK_N, groups]` of values stored group by group, for the groups of columns column .. + BLOCK_K."""
    GROUPS: tl.constexpr = BLOCK_K // GROUP if BLOCK_K > GROUP else 1
    g = column // GROUP + tl.arange(0, GROUPS)
    return tl.load(values + g[None, :] * stride + n[:, None])


@triton.jit
def _widen(values, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr):
    """`[BLOCK_N, groups]` -> what broadcasts over `[BLOCK_N, BLOCK_K]`."""
    if BLOCK_K > GROUP:
        wide = tl.broadcast_to(values[:, :, None], [BLOCK_N, BLOCK_K // GROUP, GROUP])
        return tl.reshape(wide, [BLOCK_N, BLOCK_K])
    else:
        return values


@triton.jit
def _unit(scale):
    """The scale of each row's first group `[BLOCK_N, 1]` in float32, never zero."""
    first = tl.sum(tl.where((tl.arange(0, scale.shape[1]) == 0)[None, :], scale.to(tl.float32), 0.0), 1)[:, None]
    return tl.where(tl.abs(first) < LEAST, LEAST, first)


@triton.jit(do_not_specialize=["M", "per_split"])
def _int4_linear(
    y, partial, arrivals, x, words, scales, zeros, magic, M, N, K, x_row, stride, per_split,
    OFFSET: tl.constexpr, GROUP: tl.constexpr, HAS_ZEROS: tl.constexpr, SPLIT: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, STAGES: tl.constexpr, OVERLAP: tl.constexpr,
    AHEAD: tl.constexpr,
):  # fmt: skip
    DTYPE: tl.constexpr = x.dtype.element_ty
    STEP: tl.constexpr = BLOCK_K // 64 * 512
    row_tile, split = tl.program_id(0), tl.program_id(1)
    m = tl.program_id(2) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = row_tile * BLOCK_N + tl.arange(0, BLOCK_N)
    some = m < M
    first = split * per_split
    last = tl.minimum(first + per_split, K // BLOCK_K)
    w_at = words + places(row_tile, K, BLOCK_N, BLOCK_K)
    x_at = x + m[:, None].to(tl.int64) * x_row + tl.arange(0, BLOCK_K)[None, :]
    if OVERLAP:
        tl.extra.cuda.gdc_launch_dependents()
        fetch_ahead(words, row_tile, first, last, K, BLOCK_N, BLOCK_K, AHEAD)
        tl.extra.cuda.gdc_wait()
    scale = _of_groups(scales, first * BLOCK_K, stride, n, GROUP, BLOCK_K)
    if HAS_ZEROS:
        zero = _of_groups(zeros, first * BLOCK_K, stride, n, GROUP, BLOCK_K)
    acc = tl.zeros([BLOCK_N, BLOCK_M], tl.float32)
    for step in tl.range(first, last, num_stages=STAGES):
        w = spread(tl.load(w_at + step * STEP), magic, DTYPE, BLOCK_N, BLOCK_K)
        x_tile = tl.load(x_at + step * BLOCK_K, mask=some[:, None], other=0.0)
        if HAS_ZEROS:
            w -= _widen(zero.to(DTYPE) + OFFSET, BLOCK_N, BLOCK_K, GROUP)
        else:
            w -= OFFSET + 8
        if BLOCK_K > GROUP:
            w *= _widen((scale.to(tl.float32) / _unit(scale)).to(DTYPE), BLOCK_N, BLOCK_K, GROUP)
        column = tl.minimum(step + 1, last - 1) * BLOCK_K  # asked for one step ahead
        acc += tl.dot(w, x_tile.T) * _unit(scale)
        scale = _of_groups(scales, column, stride, n, GROUP, BLOCK_K)
        if HAS_ZEROS:
            zero = _of_groups(zeros, column, stride, n, GROUP, BLOCK_K)
    inside = some[None, :] & (n < N)[:, None]
    y_at = y + m[None, :].to(tl.int64) * N + n[:, None]
    if SPLIT:
        acc, last_to_arrive = sum_of_parts(partial, arrivals, acc, inside)
        inside &= last_to_arrive
    tl.store(y_at, acc.to(DTYPE), mask=inside)


def int4_linear(
    y: torch.Tensor,
    partial: torch.Tensor | None,
    arrivals: torch.Tensor,
    x: torch.Tensor,
    words: torch.Tensor,
    scales: torch.Tensor,
    zeros: torch.Tensor | None,
    group_size: int,
    block_m: int,
    block_n: int,
    block_k: int,
    split: int,
    num_warps: int,
    num_stages: int,
    ahead: int | None = None,
) -> None:
    """Launch: y `[M, N]` contiguous, x `[M, K]` with rows of stride 1, words as in int4_words.py, scales and zeros
    `[K / group_size, N rounded up to 64]`, partial `[tiles, split, block_m, block_n]` float32 (None without a split),
    arrivals int32 `[tiles]`, zero; ahead: tiles to fetch while the kernel before runs, None: not to start before its
    end (below compute capability 9.0). Checks nothing: see `labllm.quantization.int4`.
    """
    (rows, columns), outputs = x.shape, y.shape[1]
    grid = triton.cdiv(outputs, block_n), split, triton.cdiv(rows, block_m)
    _int4_linear[grid](
        y, partial, arrivals, x, words, scales, zeros, MAGIC[x.dtype], rows, outputs, columns, x.stride(0),
        scales.stride(0), triton.cdiv(columns // block_k, split), OFFSET=OFFSET[x.dtype], GROUP=group_size,
        HAS_ZEROS=zeros is not None, SPLIT=split > 1, BLOCK_M=block_m, BLOCK_N=block_n, BLOCK_K=block_k,
        STAGES=num_stages, OVERLAP=ahead is not None, AHEAD=ahead or 0, num_warps=num_warps,
        **({} if ahead is None else {"launch_pdl": True}),
    )  # fmt: skip
