"""Exchange: one token's sums over ranks inside the products on both sides (kernels/exchange_linear.py), checked.

    begin            a step begins: what the last one sent does not count any more
    push_linear      a product whose answer is this rank's summand
    collect_linear   norm and product of the sum
    close            the sum as a tensor

Cost: 2 ranks H words of 8 bytes in every rank's memory; a sum costs the latency of a message and no launch. Invariant:
all ranks do the same sums in the same order, and each step ends with something for which every rank waits (a gather of
logits), so that no rank is more than one sum ahead.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from labllm.hardware import can_start_early, this_machine
from labllm.parallel.symmetric import SymmetricBuffer


@dataclass(frozen=True, eq=False)
class InFlight:
    """One token's sum over ranks that nobody has added up yet: own float32 [1, H], and sum `number` in the inboxes."""

    own: Tensor
    number: int


class Exchange:
    """Sums of [1, hidden] among the ranks of `group` (None: all); every rank must make one.

    sums: the most that one step has. Raises ValueError for sizes that are not positive, and as `SymmetricBuffer`.
    """

    def __init__(self, hidden: int, sums: int, group: dist.ProcessGroup | None = None) -> None:
        if min(hidden, sums) < 1:
            raise ValueError(f"An exchange needs sizes of at least 1; got {hidden} and {sums}.")
        self.hidden, self.sums = hidden, sums
        self.rank, size = dist.get_rank(group), dist.get_world_size(group)
        self._buffer = SymmetricBuffer((2, size, hidden), torch.int64, group)
        self._inbox, self._inboxes = self._buffer.own, self._buffer.pointers
        self._epoch = torch.zeros(1, dtype=torch.int64, device=self._inbox.device)
        self._number = 0
        self._overlap = can_start_early(self._inbox.device.type)

    def begin(self) -> None:
        """Before the first sum of a step; a captured graph holds it."""
        self._epoch.add_(self.sums)
        self._number = 0

    def push_linear(
        self, x: Tensor, weight: Tensor, bias: Tensor | None = None, residual: Tensor | InFlight | None = None
    ) -> InFlight:
        """x [1, K] weight^T + bias + residual [1, H], this rank's summand, on its way to the others.

        weight [H, K], bias [H]; a residual that is in flight is added up on the way. Raises ValueError for what does
        not fit.
        """
        from labllm.kernels import exchange_linear as kernel

        if x.shape != (1, weight.shape[1]) or weight.shape[0] != self.hidden:
            raise ValueError(f"x must be [1, K] and weight [{self.hidden}, K]; got {[*x.shape]}, {[*weight.shape]}.")
        before = residual if isinstance(residual, InFlight) else None
        own = torch.empty(1, self.hidden, dtype=torch.float32, device=x.device)
        sent = InFlight(own, self._next())
        block_k = min(1 << (x.shape[1] - 1).bit_length(), 2048)
        kernel.push_linear(
            own, x, weight, bias, residual if before is None else None, before and before.own,
            before.number if before else 0, self._inboxes, self._inbox, self._epoch, sent.number, self.rank,
            max(2, 2048 // block_k), block_k, max(1, block_k // 512), self._overlap,
        )  # fmt: skip
        return sent

    def collect_linear(
        self, h: InFlight, weight: Tensor, bias: Tensor | None, gain: Tensor, eps: float, gated: bool = False
    ) -> Tensor:
        """RMSNorm(h) weight^T + bias -> [1, N] in weight's dtype; gated as `labllm.fusion.skinny_linear`.

        weight [N, H] or [2 N, H], gain [H]. Raises ValueError for what does not fit.
        """
        from labllm.kernels import exchange_linear as kernel

        if weight.shape[1] != self.hidden or gain.shape != (self.hidden,):
            raise ValueError(f"weight must be [N, {self.hidden}] and gain [{self.hidden}]; got {[*weight.shape]}.")
        out = weight.new_empty(1, len(weight) // 2 if gated else len(weight))
        machine = this_machine(weight.device.type)
        block_n, warps, programs = collect_tile(out.shape[1], self.hidden, gated)
        kernel.collect_linear(
            out, h.own, weight, bias, gain, eps, gated, self._inbox, self._epoch, h.number, self.rank,
            programs * machine.cores, block_n, warps, self._overlap,
        )  # fmt: skip
        return out

    def close(self, h: InFlight, dtype: torch.dtype) -> Tensor:
        """h as a tensor [1, H]."""
        from labllm.kernels import exchange_linear as kernel

        out = torch.empty(1, self.hidden, dtype=dtype, device=h.own.device)
        kernel.close(out, h.own, self._inbox, self._epoch, h.number, self.rank, 512, 4, self._overlap)
        return out

    def _next(self) -> int:
        number, self._number = self._number, self._number + 1
        if number >= self.sums:
            raise ValueError(f"A step has at most {self.sums} sums here: call begin() before the first of a step.")
        return number


def collect_tile(outputs: int, inputs: int, gated: bool) -> tuple[int, int, int]:
    """(outputs at a time, warps, programs a multiprocessor) of `collect_linear`: 32 or 64 weights a thread at once."""
    row = 1 << (inputs - 1).bit_length()
    warps = max(1, min(8, row // 512))
    return (1 if gated else 2), warps, max(1, 16 // warps)
