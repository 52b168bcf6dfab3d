"""Multiplying with INT4 weights on a GPU: the ways that there are, each on the same `KernelWeight`.

`fused` dequantises on the way into the tensor cores (kernels/int4_linear.py), `gemv` takes one token on the CUDA cores
(kernels/int4_gemv.py), `one_token` the same on the tensor cores (kernels/int4_one_token.py). On Hopper tens to hundreds
of tokens go to `cluster` where there is nvcc (kernels/cuda/int4_cluster.cu), else to `wide` (kernels/int4_wide.py).
`dequantize` writes 16-bit weights for a GEMM (kernels/int4_dequantize.py), in slabs that stay in the cache. `plain`
reads the stored form and shows what dequantising costs without any trick. `linear` chooses by the number of tokens and
the device.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from labllm.hardware import can_start_early, this_machine
from labllm.quantization.int4_checks import check_kernel, check_x, checked
from labllm.quantization.int4_cluster import cluster, why_not_cluster
from labllm.quantization.kernel_layout import KernelWeight
from labllm.quantization.one_token import one_token, why_not_one_token
from labllm.quantization.packed import QuantizedWeight
from labllm.quantization.tiles import Strip, Tile, strip_for, tile_for
from labllm.quantization.wide import why_not_wide, wide

FEW = 16  # tokens up to which `fused` is faster than `cluster`
MOST = 1024  # tokens up to which `cluster` is faster than dequantising once
SOME = 64  # tokens up to which `fused` is faster than `wide`
MANY = 1024  # tokens from which dequantising once is faster
OTHERS_MANY = 512  # the same where there is no such product


def linear(x: Tensor, weight: KernelWeight) -> Tensor:
    """x [M, K] float16 or bfloat16 -> x W^T [M, N], the way that is fastest for M. Raises ValueError for others."""
    tokens, group, device = x.shape[0], weight.group_size, weight.words.device.type
    if tokens == 1 and not why_not_one_token(weight.shape[1], group, device):
        return one_token(x, weight)
    if FEW < tokens <= MOST and not why_not_cluster(*weight.shape, group, device):
        return cluster(x, weight)
    hopper = not why_not_wide(weight.shape[1], group, device)
    if tokens >= (MANY if hopper else OTHERS_MANY):
        return dequantize_then_multiply(x, weight)
    return wide(x, weight) if hopper and tokens > SOME else fused(x, weight)


def fused(x: Tensor, weight: KernelWeight, tile: Tile | None = None) -> Tensor:
    """x [M, K] -> x W^T [M, N] in one launch. Captured CUDA graphs may hold it; calls with one weight must follow one
    another on a stream. Raises ValueError for what does not fit.
    """
    x = checked(x, weight)
    (tokens, inputs), outputs = x.shape, weight.shape[0]
    y = x.new_empty(tokens, outputs)
    if not tokens:
        return y
    from labllm.kernels import int4_linear

    case = tokens, outputs, inputs, weight.group_size, weight.zeros is not None
    tile = tile or tile_for(*case, this_machine(x.device.type))
    tile = _fitting(tile, weight)
    tiles = -(-outputs // tile.block_n) * -(-tokens // tile.block_m)
    arrivals, partial = weight.arrivals, None
    if tile.split > 1:
        size = tiles, tile.split, tile.block_m, tile.block_n
        partial = torch.empty(size, dtype=torch.float32, device=x.device)
        if tiles > len(arrivals):
            arrivals = torch.zeros(tiles, dtype=torch.int32, device=x.device)
    int4_linear.int4_linear(
        y, partial, arrivals, x, weight.words, weight.scales, weight.zeros, weight.group_size, *tile
    )
    return y


def gemv(x: Tensor, weight: KernelWeight, strip: Strip | None = None) -> Tensor:
    """x [1, K] -> x W^T [1, N] on the CUDA cores. Raises ValueError for more rows, or groups of 32."""
    x = checked(x, weight)
    if x.shape[0] != 1:
        raise ValueError(f"the GEMV takes one token, x [1, K]; got {x.shape[0]}")
    if weight.group_size % 64:
        raise ValueError(f"the GEMV takes groups of multiples of 64; got {weight.group_size}")
    from labllm.kernels import int4_gemv

    y = x.new_empty(1, weight.shape[0])
    strip = strip or strip_for(weight.shape[0])
    int4_gemv.int4_gemv(y[0], x[0].contiguous(), weight.words, weight.scales, weight.zeros, weight.group_size, *strip)
    return y


def dequantize(weight: KernelWeight, dtype: torch.dtype, rows: range | None = None) -> Tensor:
    """Rows of W in `dtype`, float16 or bfloat16, columns in stored order: [len(rows), K]; all rows by default.

    Rows start at a multiple of 64. Raises ValueError for others.
    """
    rows = range(weight.shape[0]) if rows is None else rows
    check_kernel(dtype, weight.words.device)
    if rows.start % 64 or rows.step != 1 or rows.stop > weight.shape[0]:
        raise ValueError(f"rows must start at a multiple of 64 and end by {weight.shape[0]}; got {rows}")
    from labllm.kernels import int4_dequantize

    out = torch.empty(len(rows), weight.shape[1], dtype=dtype, device=weight.words.device)
    scales, zeros = (None if t is None else t[:, rows.start :] for t in (weight.scales, weight.zeros))
    int4_dequantize.int4_dequantize(out, weight.words[rows.start // 64 :], scales, zeros, weight.group_size)
    return out


def dequantize_then_multiply(x: Tensor, weight: KernelWeight, slab: int | None = None) -> Tensor:
    """x [M, K] -> x W^T [M, N]: W written out in x's dtype, `slab` rows at a time (default: all), then multiplied."""
    x = checked(x, weight)
    outputs = weight.shape[0]
    if slab is None or slab >= outputs:
        return F.linear(x, dequantize(weight, x.dtype))
    y = x.new_empty(x.shape[0], outputs)
    for start in range(0, outputs, slab):
        rows = range(start, min(start + slab, outputs))
        torch.mm(x, dequantize(weight, x.dtype, rows).t(), out=y[:, rows.start : rows.stop])
    return y


def plain(x: Tensor, weight: QuantizedWeight) -> Tensor:
    """x [M, K] -> x W^T [M, N] from the stored form of 4 bits, without any trick. Raises ValueError for other bits."""
    check_x(x, weight.shape)
    check_kernel(x.dtype, x.device)
    if weight.bits != 4 or weight.order is not None or weight.group_size % 16:
        raise ValueError(
            f"the plain kernel takes 4 bits in natural order, in groups of multiples of 16; got {weight.bits} bits in "
            f"groups of {weight.group_size}"
        )
    y = x.new_empty(x.shape[0], weight.shape[0])
    if len(x):
        from labllm.kernels import int4_plain

        int4_plain.int4_plain(y, x, weight.qweight, weight.scales, weight.zeros, weight.group_size)
    return y


def _fitting(tile: Tile, weight: KernelWeight) -> Tile:
    """The tile with no more ranges of K than have a step, started early only where that is possible; or ValueError."""
    rows, inputs = weight.scales.shape[1], weight.shape[1]
    if rows % tile.block_n or inputs % tile.block_k:
        raise ValueError(f"a tile must divide the weight, {rows} rows and {inputs} columns; got {tile}")
    steps = inputs // tile.block_k
    split = -(-steps // -(-steps // tile.split))
    return tile._replace(split=split, ahead=tile.ahead if can_start_early(weight.words.device.type) else None)
