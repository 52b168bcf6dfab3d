"""Slots: the memory of kernels that push, on every rank.

kernels/one_shot.py says what they hold and why three are enough.
Every kernel that pushes has slots of its own, since its programs count their own calls.
"""

from __future__ import annotations

import torch
import torch.distributed as dist

from labllm.hardware import can_start_early
from labllm.parallel.symmetric import SymmetricBuffer


class Slots:
    """3 slots of `capacity` elements of `dtype` for each rank of `group` (None: all), `phases` times; all must make it.

    own        this rank's slots, integers as wide as dtype [3, phases ranks, capacity]
    pointers   the addresses of every rank's, int64 [ranks]
    calls      what each of `programs` has sent so far, int32 [programs]
    overlap    whether kernels may start early here

    Raises ValueError for a dtype that is not a floating one of 2 or 4 bytes, and as `SymmetricBuffer`.
    """

    def __init__(
        self, capacity: int, programs: int, dtype: torch.dtype, group: dist.ProcessGroup | None = None, phases: int = 1
    ) -> None:
        from labllm.kernels.one_shot import SLOTS, WORDS, nothing

        if not dtype.is_floating_point or dtype.itemsize not in WORDS:
            raise ValueError(f"dtype must be a floating one of 2 or 4 bytes, got {dtype}")
        self.dtype, self.rank, self.ranks = dtype, dist.get_rank(group), dist.get_world_size(group)
        self._buffer = SymmetricBuffer((SLOTS, phases * self.ranks, capacity), WORDS[dtype.itemsize], group)
        self.own, self.pointers = self._buffer.own, self._buffer.pointers
        self.own.fill_(nothing(dtype))
        self.calls = torch.zeros(programs, dtype=torch.int32, device=self.own.device)
        self.overlap = can_start_early(self.own.device.type)
        if self.own.is_cuda:
            torch.cuda.synchronize()
        dist.barrier(group)  # nobody writes before all slots are empty

    def check(self, x: torch.Tensor) -> None:
        """Raises ValueError where `x` has another dtype."""
        if x.dtype != self.dtype:
            raise ValueError(f"x must be {self.dtype}, got {x.dtype}")
