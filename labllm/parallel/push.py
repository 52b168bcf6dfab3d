"""All-reduce by pushing: our kernels with the memory that they need (kernels/one_shot.py, kernels/two_shot.py).

For what tensor parallelism sums in a decode step, kilobytes, the time is the latency of a message and not its bytes:
one shot sends one message and waits for one. Among more than two ranks long messages go in two shots, which move fewer
bytes. Where both cost the same follows from a crossing's latency alpha and the link's rate beta: one shot pays
alpha + (n - 1) N / beta, two pay 2 alpha + 2 (n - 1) / n N / beta.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor

from labllm.parallel.slots import Slots

PUSH_KERNELS = ("one_shot", "two_shot")  # files that what pushes launches, for the hash of a record
LONG = 2**21  # bytes from which pieces are larger
CROSSING = 2**20  # alpha beta in bytes: what a link carries while one message crosses it


def two_shots_pay(size: int, ranks: int) -> bool:
    """Whether a message of `size` bytes is summed faster in two shots than in one."""
    return ranks > 2 and size * (ranks - 1) * (1 - 2 / ranks) > CROSSING


class PushAllReduce:
    """Sums and gathers tensors of `dtype` among the ranks of `group` in one shot; every rank must make it.

    Memory: 3 ranks slots of some megabytes on every rank; what is larger goes piece by piece, with larger pieces where
    it is `long`. `programs` limits both. Calls are to be the same on all ranks, on one stream. Raises ValueError for a
    dtype that is not a floating one of 2 or 4 bytes.
    """

    def __init__(
        self,
        dtype: torch.dtype,
        group: dist.ProcessGroup | None = None,
        *,
        long: bool = False,
        programs: int | None = None,
    ) -> None:
        from labllm.kernels import one_shot as kernel

        self._kernel, self._tile = kernel, kernel.LONG if long else kernel.SHORT
        programs = programs or self._tile.programs
        self._slots = Slots(programs * self._tile.block, programs, dtype, group)

    def __call__(self, x: Tensor) -> Tensor:
        """The sum of x [...] over the ranks, a new tensor of the same shape. Raises ValueError for another dtype."""
        return self._pushed(x, gather=False).view(x.shape)

    def gather(self, x: Tensor) -> Tensor:
        """Everyone's x [...], in order of rank, [ranks, ...]; -0.0 comes as 0.0. Raises ValueError as a sum."""
        return self._pushed(x, gather=True).view(self._slots.ranks, *x.shape)

    def _pushed(self, x: Tensor, gather: bool) -> Tensor:
        s = self._slots
        s.check(x)
        options = {"tile": self._tile, "gather": gather, "overlap": s.overlap}
        return self._kernel.one_shot(x.contiguous().view(-1), s.own, s.pointers, s.calls, s.rank, **options)


class PushTwoShot:
    """As `PushAllReduce`, in two shots; sums only. Memory: 6 ranks slots on every rank."""

    def __init__(self, dtype: torch.dtype, group: dist.ProcessGroup | None = None, programs: int | None = None) -> None:
        from labllm.kernels import two_shot as kernel

        programs = programs or kernel.PROGRAMS
        self._slots, self._kernel = Slots(programs * kernel.BLOCK, programs, dtype, group, phases=2), kernel

    def __call__(self, x: Tensor) -> Tensor:
        """The sum of x [...] over the ranks, a new tensor of the same shape. Raises ValueError for another dtype."""
        s = self._slots
        s.check(x)
        flat = x.contiguous().view(-1)
        return self._kernel.two_shot(flat, s.own, s.pointers, s.calls, s.rank, overlap=s.overlap).view(x.shape)


class Push:
    """As a strategy, for any dtype: sums of any shape, in one shot or two, and what every rank has.

    Memory for a dtype is made when it first comes, so warm up before a graph is captured.
    """

    def __init__(self, group: dist.ProcessGroup | None = None) -> None:
        self._group, self._ranks = group, dist.get_world_size(group)
        self._shots: dict[tuple[bool, torch.dtype], PushAllReduce] = {}
        self._twice: dict[torch.dtype, PushTwoShot] = {}

    def takes(self, x: Tensor) -> bool:
        """Whether gathering x by pushing is as good as by torch.distributed."""
        return self._ranks == 2 or x.nbytes <= CROSSING

    def __call__(self, x: Tensor) -> Tensor:
        """x of any shape -> the sum over ranks, a new tensor."""
        if not two_shots_pay(x.nbytes, self._ranks):
            return self._shot(x)(x)
        if x.dtype not in self._twice:
            self._twice[x.dtype] = PushTwoShot(x.dtype, self._group)
        return self._twice[x.dtype](x)

    def gather(self, x: Tensor) -> Tensor:
        """x [...] -> everyone's, [ranks, ...]; -0.0 comes as 0.0."""
        return self._shot(x).gather(x)

    def _shot(self, x: Tensor) -> PushAllReduce:
        key = (x.nbytes > LONG, x.dtype)
        if key not in self._shots:
            self._shots[key] = PushAllReduce(x.dtype, self._group, long=key[0])
        return self._shots[key]


def push(group: dist.ProcessGroup | None = None) -> Push:
    """The strategy among the ranks of `group` (None: all)."""
    return Push(group)
