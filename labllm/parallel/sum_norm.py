"""SumAddNorm: an all-reduce, a residual add and an RMSNorm among the ranks of one machine, in one launch.

The kernel is kernels/sum_norm.py; here are the memory that it needs and what it refuses. Cost: (ranks - 1) T H elements
a rank over the link, and 3 ranks max_tokens H elements of memory. Invariant: all ranks make the same calls in the same
order. It loses where tokens are many (a prefill): there the bytes count, and NCCL or two-shot move fewer.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor

from labllm.parallel.slots import Slots


class SumAddNorm:
    """Calls on x [T, hidden] of `dtype`, T up to max_tokens, among the ranks of `group` (None: all); all must make it.

    Raises ValueError as `Slots`.
    """

    def __init__(
        self, hidden: int, max_tokens: int, dtype: torch.dtype, group: dist.ProcessGroup | None = None
    ) -> None:
        from labllm.kernels import sum_norm as kernel

        self.hidden, self.max_tokens, self.dtype, self._kernel = hidden, max_tokens, dtype, kernel
        self._slots = Slots(-(-max_tokens * hidden // 16) * 16, max_tokens, dtype, group)

    def takes(self, x: Tensor) -> bool:
        """Whether x has the dtype, the width and no more tokens than there is room for."""
        return x.dtype == self.dtype and x.dim() == 2 and x.shape[1] == self.hidden and len(x) <= self.max_tokens

    def __call__(self, x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
        """x [T, H] of this rank -> (RMSNorm(s) * weight, s), s = residual + sum over ranks of x, on every rank.

        residual [T, H] and weight [H] in x's dtype, the same on all ranks. Raises ValueError for others.
        """
        if not self.takes(x) or residual.shape != x.shape or weight.shape != (self.hidden,):
            raise ValueError(
                f"x and residual must be [T, {self.hidden}] with T up to {self.max_tokens}, weight [{self.hidden}], in "
                f"{self.dtype}; got {[*x.shape]} {x.dtype}, {[*residual.shape]} and {[*weight.shape]}."
            )
        out, total = torch.empty_like(x), torch.empty_like(x)
        warps = max(1, min(16, self.hidden // 256))
        s = self._slots
        slots = s.own, s.pointers, s.calls, s.rank
        self._kernel.sum_add_rms_norm(
            out, total, x.contiguous(), residual.contiguous(), weight, eps, *slots, warps, s.overlap
        )
        return out, total
