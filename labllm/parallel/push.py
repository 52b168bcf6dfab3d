"""All-reduce by pushing: our one-shot kernel (kernels/one_shot.py) with the memory that it needs.

For what tensor parallelism sums in a decode step, kilobytes, the time is the latency of a message and not its bytes.
This sends one message and waits for one.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor

from labllm.hardware import can_start_early
from labllm.parallel.symmetric import SymmetricBuffer

MOST_BYTES = 2**20  # beyond, two-shot moves fewer bytes and NCCL has more programs


class PushAllReduce:
    """Sums of tensors of `dtype`, up to `most` bytes each, among the ranks of `group`; every rank must make it.

    Memory: 3 ranks `most` bytes on every rank. Calls are to be the same on all ranks, on one stream. Raises ValueError
    for a dtype that is not a floating one of 2 or 4 bytes.
    """

    def __init__(self, dtype: torch.dtype, group: dist.ProcessGroup | None = None, most: int = MOST_BYTES) -> None:
        from labllm.kernels import one_shot as kernel

        if not dtype.is_floating_point or dtype.itemsize not in kernel.WORDS:
            raise ValueError(f"dtype must be a floating one of 2 or 4 bytes, got {dtype}")
        self.dtype, self._kernel, self._rank = dtype, kernel, dist.get_rank(group)
        self.most = -(-most // dtype.itemsize // kernel.BLOCK) * kernel.BLOCK
        shape = (kernel.SLOTS, dist.get_world_size(group), self.most)
        self._slots = SymmetricBuffer(shape, kernel.WORDS[dtype.itemsize], group)
        self._slots.own.fill_(kernel.nothing(dtype))
        self._calls = torch.zeros(self.most // kernel.BLOCK, dtype=torch.int32, device=self._slots.own.device)
        device = self._slots.own.device
        self._overlap = can_start_early(device.type)
        if device.type == "cuda":
            torch.cuda.synchronize()
        dist.barrier(group)  # nobody writes before all slots are empty

    def takes(self, x: Tensor) -> bool:
        """True where `x` has the dtype and is small enough."""
        return x.dtype == self.dtype and x.numel() <= self.most

    def __call__(self, x: Tensor) -> Tensor:
        """The sum of x [...] over the ranks, a new tensor of the same shape.

        Raises ValueError for what it does not take.
        """
        if not self.takes(x):
            raise ValueError(f"x must be {self.dtype} of at most {self.most} elements, got {x.dtype} of {x.numel()}")
        x = x.contiguous()
        slots = (self._slots.own, self._slots.pointers, self._calls, self._rank)
        return self._kernel.one_shot(x.view(-1), *slots, overlap=self._overlap).view(x.shape)


def push(group: dist.ProcessGroup | None = None) -> Callable[[Tensor], Tensor]:
    """As a strategy: x of any shape -> the sum, by pushing where it is small and by torch.distributed where not."""
    made: dict[torch.dtype, PushAllReduce] = {}

    def all_reduce(x: Tensor) -> Tensor:
        if x.dtype not in made:
            made[x.dtype] = PushAllReduce(x.dtype, group)
        if made[x.dtype].takes(x):
            return made[x.dtype](x)
        x = x.contiguous()
        dist.all_reduce(x, group=group)
        return x

    return all_reduce
