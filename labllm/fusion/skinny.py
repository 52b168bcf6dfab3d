"""A linear layer for a few tokens in one launch with its neighbours: kernels/skinny_linear.py, checked, tiles chosen.

Vertical fusion into the product itself, which decode of one sequence allows because it is bound by the weights' bytes:
the norm before it, the gate and the residual add behind it cost no launch and no pass. Captured CUDA graphs may hold
it. It loses to a GEMM from about two tokens on.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from labllm.fusion.check import check_kernel, check_weight
from labllm.hardware import can_start_early

MOST_TOKENS = 4
MANY_OUTPUTS = 1 << 15


class SkinnyTile(NamedTuple):
    """Outputs and inputs of a tile, both powers of two, warps of a program, and tiles on their way at once."""

    block_n: int
    block_k: int
    num_warps: int
    stages: int


INTERPRETED = SkinnyTile(128, 256, 4, 1)  # few programs, which the interpreter runs one after the other


def skinny_linear(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    gain: Tensor | None = None,
    eps: float = 1e-6,
    residual: Tensor | None = None,
    gated: bool = False,
    tile: SkinnyTile | None = None,
) -> Tensor:
    """y = RMSNorm(x) weight^T + bias, gated, plus residual, for x `[T, K]` with T in 1 .. 4 -> `[T, N]`.

    weight `[N, K]`, or `[2 N, K]` with gates first where `gated`: then SiLU(gate) * up. gain `[K]` is the norm's weight
    (None: no norm), bias `[rows of weight]`, residual `[T, N]`. Sums are float32. Contiguous, one dtype of float32,
    float16, bfloat16, one device. Raises ValueError for others.
    """
    outputs = _check(x, weight, bias, gain, residual, gated)
    out = x.new_empty(len(x), outputs)
    from labllm.kernels import skinny_linear as kernel

    tile = tile or (skinny_tile(len(x), outputs, x.shape[1], gain is not None) if x.is_cuda else INTERPRETED)
    kernel.skinny_linear(out, x, weight, bias, gain, residual, eps, gated, *tile, can_start_early(x.device.type))
    return out


def skinny_tile(tokens: int, outputs: int, inputs: int, normed: bool) -> SkinnyTile:
    """The tile for `outputs` rows of `inputs` weights, of which a thread holds 32 or 64 at once for one token.

    Behind a norm, whose weight every program reads beside the token, whole rows are best, so that nothing waits for a
    second turn; without, half as much in many programs, or a quarter where a row is no whole number of halves, or one.
    Where outputs are so many that the tail of the last programs does not count, more rows share what is read of the
    token.
    """
    row = 1 << (inputs - 1).bit_length()
    if tokens > 1:
        return SkinnyTile(4, min(row, 2048 // _padded(tokens)), 4, 1)
    whole = inputs % 2048 == 0 and inputs > 2048
    plain = (2, 2048, 4) if whole else (2, 1024, 2)
    rows, held, warps = (8, 1024, 4) if outputs >= MANY_OUTPUTS else (2, 4096, 8) if normed else plain
    block_k = min(row, held)
    rows = max(rows, 2048 // block_k)
    return SkinnyTile(rows, block_k, max(1, min(warps, rows * block_k // 1024)), 1)


def _padded(tokens: int) -> int:
    return 1 << (tokens - 1).bit_length()


def _check(
    x: Tensor, weight: Tensor, bias: Tensor | None, gain: Tensor | None, residual: Tensor | None, gated: bool
) -> int:
    """How many outputs there are; ValueError for what does not fit."""
    if x.dim() != 2 or not 1 <= len(x) <= MOST_TOKENS:
        raise ValueError(f"x must be [T, K] with 1 to {MOST_TOKENS} tokens, got {list(x.shape)}")
    outputs = check_weight(x, weight, gated)
    wanted = {"bias": (bias, (len(weight),)), "gain": (gain, x.shape[1:]), "residual": (residual, (len(x), outputs))}
    given: dict[str, Tensor] = {}
    for name, (tensor, shape) in wanted.items():
        if tensor is not None:
            if tensor.shape != torch.Size(shape):
                raise ValueError(f"{name} must be {list(shape)}, got {list(tensor.shape)}")
            given[name] = tensor
    check_kernel(x=x, weight=weight, **given)
    return outputs
