"""SumLinear: a product of one token and its sum over the ranks of one machine, sent while it is computed.

The kernels are in kernels/sum_linear.py; here are the memory that they need and what they refuse. Cost: the product,
and of the all-reduce behind it the latency of its last words. Invariant: all ranks make the same calls in the same
order. It loses with more than one token: tensor cores multiply faster, and their answer comes all at once.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor

from labllm.parallel.slots import Slots

BLOCK_N, BLOCK_K, WARPS = 2, 1024, 2  # small tiles in many programs: the first of them send early


class SumLinear:
    """Calls on x [1, K] with weights [outputs, K] of `dtype` among the ranks of `group` (None: all); all must make it.

    Raises ValueError as `Slots`.
    """

    def __init__(self, outputs: int, dtype: torch.dtype, group: dist.ProcessGroup | None = None) -> None:
        from labllm.kernels import sum_linear as kernel

        self.outputs, self.dtype, self._kernel = outputs, dtype, kernel
        pieces = -(-outputs // kernel.PIECE)
        self._slots = Slots(pieces * kernel.PIECE, pieces, dtype, group)

    def __call__(self, x: Tensor, weight: Tensor, bias: Tensor | None = None, residual: Tensor | None = None) -> Tensor:
        """The sum over ranks of x weight^T + bias + residual, [1, outputs], on every rank.

        x [1, K] and weight [outputs, K] are each rank's own, bias [outputs] and residual [1, outputs] should be given
        on one rank alone. Raises ValueError for other shapes and dtypes.
        """
        given = [tensor for tensor in (x, weight, bias, residual) if tensor is not None]
        if x.shape != (1, weight.shape[1]) or len(weight) != self.outputs or {t.dtype for t in given} != {self.dtype}:
            raise ValueError(
                f"x must be [1, K] and weight [{self.outputs}, K], all in {self.dtype}; got {[*x.shape]} {x.dtype} and "
                f"{[*weight.shape]} {weight.dtype}."
            )
        mine, total = (x.new_empty(1, self.outputs) for _ in range(2))
        s = self._slots
        slots = s.own, s.pointers, s.calls, s.rank
        block_k = min(BLOCK_K, 1 << (x.shape[1] - 1).bit_length())
        self._kernel.sum_linear(
            total, mine, x.contiguous(), weight, bias, residual, *slots, BLOCK_N, block_k,
            max(1, BLOCK_N * block_k // 1024), s.overlap,
        )  # fmt: skip
        return total
