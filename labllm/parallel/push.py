"""All-reduce by pushing: our one-shot kernel (kernels/one_shot.py) with the memory that it needs.

For what tensor parallelism sums in a decode step, kilobytes, the time is the latency of a message and not its bytes.
This sends one message and waits for one.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor

from labllm.hardware import can_start_early
from labllm.parallel.symmetric import SymmetricBuffer

MOST_BYTES = 2**20  # with more than two ranks; beyond, two-shot moves fewer bytes


class PushAllReduce:
    """Sums and gathers tensors of `dtype` among the ranks of `group`; every rank must make it.

    Memory: 3 ranks slots of `capacity` elements on every rank; larger tensors go piece by piece. Calls are to be the
    same on all ranks, on one stream. Raises ValueError for a dtype that is not a floating one of 2 or 4 bytes.
    """

    def __init__(self, dtype: torch.dtype, group: dist.ProcessGroup | None = None, capacity: int | None = None) -> None:
        from labllm.kernels import one_shot as kernel

        if not dtype.is_floating_point or dtype.itemsize not in kernel.WORDS:
            raise ValueError(f"dtype must be a floating one of 2 or 4 bytes, got {dtype}")
        self.dtype, self._kernel, self._rank = dtype, kernel, dist.get_rank(group)
        self.ranks = dist.get_world_size(group)
        programs = kernel.PROGRAMS if capacity is None else -(-capacity // kernel.BLOCK)
        shape = (kernel.SLOTS, self.ranks, programs * kernel.BLOCK)
        self._slots = SymmetricBuffer(shape, kernel.WORDS[dtype.itemsize], group)
        self._slots.own.fill_(kernel.nothing(dtype))
        device = self._slots.own.device
        self._calls = torch.zeros(programs, dtype=torch.int32, device=device)
        self._overlap = can_start_early(device.type)
        if device.type == "cuda":
            torch.cuda.synchronize()
        dist.barrier(group)  # nobody writes before all slots are empty

    def __call__(self, x: Tensor) -> Tensor:
        """The sum of x [...] over the ranks, a new tensor of the same shape. Raises ValueError for another dtype."""
        return self._pushed(x, gather=False).view(x.shape)

    def gather(self, x: Tensor) -> Tensor:
        """Everyone's x [...], in order of rank, [ranks, ...]; -0.0 comes as 0.0. Raises ValueError as a sum."""
        return self._pushed(x, gather=True).view(self.ranks, *x.shape)

    def _pushed(self, x: Tensor, gather: bool) -> Tensor:
        if x.dtype != self.dtype:
            raise ValueError(f"x must be {self.dtype}, got {x.dtype}")
        flat, slots = x.contiguous().view(-1), (self._slots.own, self._slots.pointers, self._calls, self._rank)
        return self._kernel.one_shot(flat, *slots, gather=gather, overlap=self._overlap)


class Push:
    """As a strategy, for any dtype: sums of any shape, and what every rank has.

    By torch.distributed where pushing would move too many bytes. Memory for a dtype is made when it first comes.
    """

    def __init__(self, group: dist.ProcessGroup | None = None) -> None:
        self._group, self._ranks = group, dist.get_world_size(group)
        self._made: dict[torch.dtype, PushAllReduce] = {}

    def takes(self, x: Tensor) -> bool:
        """Whether x is pushed."""
        return self._ranks == 2 or x.nbytes <= MOST_BYTES

    def __call__(self, x: Tensor) -> Tensor:
        """x of any shape -> the sum over ranks; x may be overwritten."""
        if self.takes(x):
            return self._of(x.dtype)(x)
        x = x.contiguous()
        dist.all_reduce(x, group=self._group)
        return x

    def gather(self, x: Tensor) -> Tensor:
        """x [...] that is pushed -> everyone's, [ranks, ...]; -0.0 comes as 0.0."""
        return self._of(x.dtype).gather(x)

    def _of(self, dtype: torch.dtype) -> PushAllReduce:
        if dtype not in self._made:
            self._made[dtype] = PushAllReduce(dtype, self._group)
        return self._made[dtype]


def push(group: dist.ProcessGroup | None = None) -> Push:
    """The strategy among the ranks of `group` (None: all)."""
    return Push(group)
