"""One program around an inner loop that somebody else wrote: the frame of lab 05's exercise in Triton.

The program loads a tile of queries, hands the empty sums of an online softmax to INNER, a Triton function of the
signature in `run`, and stores what comes back, divided by l. k and v are handed on as bare addresses, so INNER does its
own loads and may get them wrong: `run` is meant for buffers whose surroundings show it.

Cost: one program, no parallelism; it teaches and is never timed. Invariant: what INNER returns is used once, at the
end; where it returns no sum at all the output is zeros and the log-sum-exp -inf.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl


@triton.jit
def _program(
    out, lse, q, k, v, k_len, scale, INNER: tl.constexpr, D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr
):
    rows, dims = tl.arange(0, BLOCK_M), tl.arange(0, D)
    at = rows[:, None] * D + dims[None, :]
    acc = tl.zeros([BLOCK_M, D], tl.float32)
    l = tl.zeros([BLOCK_M], tl.float32)
    m = tl.full([BLOCK_M], float("-inf"), tl.float32)
    acc, l, m = INNER(acc, l, m, tl.load(q + at), k, v, k_len, scale, D, BLOCK_N)
    some = l > 0
    tl.store(out + at, (acc / tl.where(some, l, 1.0)[:, None]).to(out.dtype.element_ty))
    tl.store(lse + rows, tl.where(some, m + tl.log2(tl.where(some, l, 1.0)), float("-inf")))


def run(
    inner: Callable[..., Any], out: torch.Tensor, lse: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor,
    block_n: int,
) -> None:  # fmt: skip
    """Write the attention of q over k, v into `out`, and its log-sum-exp in units of log 2 into `lse`.

    q, out `[BLOCK_M, D]` and k, v `[Tk, D]` contiguous, lse `[BLOCK_M]` float32; BLOCK_M, D and block_n are powers of
    two from 16. `inner(acc, l, m, q, k, v, k_len, scale, D, BLOCK_N) -> (acc, l, m)` is Triton in plain Python, with or
    without a decorator of its own.
    """
    function = triton.jit(getattr(inner, "fn", inner))
    scale = math.log2(math.e) / math.sqrt(q.shape[1])
    _program[(1,)](
        out, lse, q, k, v, len(k), scale, INNER=function, D=q.shape[1], BLOCK_M=len(q), BLOCK_N=block_n
    )  # fmt: skip
