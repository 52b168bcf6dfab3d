"""W8A8 on a GPU: weights and activations both in eight bits, INT8 or FP8 (E4M3), multiplied as they are.

Weights have a scale for each output channel, activations one for each token (kernels/quantize_rows.py). INT8 goes
through kernels/int8_linear.py, FP8 through torch's `_scaled_mm`, which calls cuBLAS. Both multiply twice as fast as 16
bits, so they gain where INT4 weights lose: at many tokens. They lose where activations have outliers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from labllm.hardware import can, this_machine
from labllm.quantization.float8 import Float8Weight
from labllm.quantization.packed import QuantizedWeight

MAX_INPUTS = 32768  # a program of kernels/quantize_rows.py holds one row
SPLITS = 8


class Tile(NamedTuple):
    """What a program of kernels/int8_linear.py takes: tokens, outputs, inputs a step; ranges of K, warps, stages."""

    block_m: int
    block_n: int
    block_k: int
    split: int
    num_warps: int
    num_stages: int


@dataclass(frozen=True, eq=False)
class Int8Weight:
    """W [N, K] = values * scales[:, None]: values int8 [N, K], scales [N] float32.

    arrivals  int32, zero: how many programs have finished each tile of the output; launches must follow one another
    """

    values: Tensor
    scales: Tensor
    arrivals: Tensor

    @property
    def shape(self) -> tuple[int, int]:
        """(N, K)."""
        return self.values.shape[0], self.values.shape[1]

    def dequantize(self, dtype: torch.dtype = torch.float32) -> Tensor:
        """[N, K], rounded once to `dtype`."""
        exact = torch.float64 if dtype == torch.float64 else torch.float32
        return (self.values.to(exact) * self.scales.to(exact)[:, None]).to(dtype)


def int8_weight(weight: QuantizedWeight) -> Int8Weight:
    """A symmetric 8-bit weight with one scale a channel as the kernel reads it. Raises ValueError for others."""
    if weight.bits != 8 or weight.zeros is not None or weight.group_size != weight.shape[1] or weight.order is not None:
        raise ValueError(
            f"W8A8 takes symmetric weights of 8 bits with one scale a channel; got {weight.bits} bits in groups of "
            f"{weight.group_size}{'' if weight.zeros is None else ', asymmetric'}"
        )
    values = (weight.codes().to(torch.int16) - 128).to(torch.int8)
    scales = weight.scales.float().expand(len(values), -1)[:, 0].contiguous()
    return Int8Weight(values, scales, _arrivals(values))


def quantize_rows(x: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """x [M, K] -> (q [M, K] int8 or float8_e4m3fn, scales [M] float32) with x about q * scales[:, None].

    Raises ValueError for what the kernel does not take.
    """
    if x.dim() != 2 or not x.is_floating_point() or not 0 < x.shape[1] <= MAX_INPUTS:
        raise ValueError(f"x must be floating point [M, K] with K up to {MAX_INPUTS}; got {x.dtype} {list(x.shape)}")
    if not (answer := can("triton", x.device.type)):
        raise ValueError(f"rows cannot be quantised by a kernel on {x.device}: {answer.reason}")
    if x.dtype == torch.bfloat16 and x.device.type == "cpu":
        raise ValueError("Triton's interpreter computes wrong results in bfloat16: on a CPU give float16 or float32")
    q = torch.empty(x.shape, dtype=dtype, device=x.device)
    scales = torch.empty(len(x), dtype=torch.float32, device=x.device)
    if len(x):
        from labllm.kernels import quantize_rows as kernel

        kernel.quantize_rows(q, scales, x if x.stride(1) == 1 else x.contiguous())
    return q, scales


def int8_linear(x: Tensor, weight: Int8Weight, tile: Tile | None = None) -> Tensor:
    """x [M, K] floating point -> x W^T [M, N] in x's dtype, x rounded to INT8 on the way. Raises ValueError."""
    _check(x, weight)
    q, scales = quantize_rows(x, torch.int8)
    (tokens, inputs), outputs = x.shape, weight.shape[0]
    y = x.new_empty(tokens, outputs)
    if not tokens:
        return y
    from labllm.kernels import int8_linear as kernel

    tile = tile or tile_for(tokens, outputs, inputs, this_machine(x.device.type).cores)
    steps = -(-inputs // tile.block_k)
    tile = tile._replace(split=-(-steps // -(-steps // tile.split)))
    tiles = -(-outputs // tile.block_n) * -(-tokens // tile.block_m)
    partial, arrivals = None, weight.arrivals
    if tile.split > 1:
        size = tiles, tile.split, tile.block_n, tile.block_m
        partial = torch.empty(size, dtype=torch.int32, device=x.device)
        if tiles > len(arrivals):
            arrivals = torch.zeros(tiles, dtype=torch.int32, device=x.device)
    kernel.int8_linear(y, partial, arrivals, q, scales, weight.values, weight.scales, *tile)
    return y


def float8_linear(x: Tensor, weight: Float8Weight) -> Tensor:
    """x [M, K] bfloat16 -> x W^T [M, N] bfloat16, x rounded to FP8 on the way. Raises ValueError."""
    _check(x, weight)
    if not (answer := can("fp8", x.device.type)) or x.dtype != torch.bfloat16:
        raise ValueError(f"an FP8 linear cannot run on {x.dtype} on {x.device}: {answer.reason or 'give it bfloat16'}")
    q, scales = quantize_rows(x, torch.float8_e4m3fn)
    columns = weight.scales.expand(weight.shape[0], 1).t().contiguous()
    return torch._scaled_mm(q, weight.values.t(), scales[:, None], columns, out_dtype=x.dtype)


def tile_for(tokens: int, outputs: int, inputs: int, cores: int) -> Tile:
    """The tile for x [tokens, inputs] and W [outputs, inputs] on a device of `cores` multiprocessors."""
    block_m = 16 if tokens <= 16 else 32 if tokens <= 32 else 64 if tokens <= 64 else 128
    block_n, num_warps = (64, 4) if tokens <= 16 or outputs <= 64 else (128, 8)
    tiles = -(-outputs // block_n) * -(-tokens // block_m)
    split = max(1, min(SPLITS, -(-inputs // 128) // 4, cores * (4 if tokens <= 16 else 2) // tiles))
    return Tile(block_m, block_n, 128, split if tokens <= 128 else 1, num_warps, 4)


def _arrivals(values: Tensor) -> Tensor:
    return torch.zeros(-(-values.shape[0] // 64) * SPLITS, dtype=torch.int32, device=values.device)


def _check(x: Tensor, weight: Int8Weight | Float8Weight) -> None:
    if x.dim() != 2 or x.shape[1] != weight.shape[1] or x.device != weight.values.device:
        raise ValueError(
            f"x must be [M, {weight.shape[1]}] on {weight.values.device}; got {list(x.shape)} on {x.device}"
        )
