"""Symmetric memory: a buffer of one shape on every rank, which the kernels of all ranks can read and write.

On GPUs it is torch's, over NVLink or PCIe peer access; its Python module and its operators are not public yet, and this
is the one file that names them. On CPUs it is a file that all ranks map, so that kernels written for it can be checked
between processes.

    one_shot   every rank reads all others' numbers and adds them: one step, (n - 1) N bytes a rank
    two_shot   every rank adds a piece and hands it round: two steps, 2 (n - 1) / n N bytes a rank

Making a buffer is a step of all ranks. Invariant: it lives as long as the object, on every rank; a rank that drops it
earlier than another takes away what the other may still read.
"""

from __future__ import annotations

import itertools
import math
import os
import tempfile
from collections.abc import Callable, Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from labllm.hardware import Answer
from labllm.parallel.group import device as own_device

SMALLEST = 2**18  # bytes of the first buffer that a strategy makes


class SymmetricBuffer:
    """A zero-filled tensor of `shape` and `dtype` on every rank of `group` (default: all); every rank must make it.

    own         this rank's tensor
    of(rank)    a tensor over the memory of that rank of the group
    pointers    the addresses of all ranks' memory as this rank sees them, int64 [ranks] on its device

    Raises RuntimeError where the GPUs cannot reach one another's memory (`can_share` says so beforehand).
    """

    def __init__(self, shape: Sequence[int], dtype: torch.dtype, group: dist.ProcessGroup | None = None) -> None:
        group = dist.group.WORLD if group is None else group
        ranks, self._shape, self._dtype = dist.get_world_size(group), tuple(shape), dtype
        if own_device().type == "cuda":
            from torch.distributed import _symmetric_memory as symmetric

            self.own = symmetric.empty(self._shape, dtype=dtype, device=own_device()).zero_()
            self._handle = symmetric.rendezvous(self.own, group)
            self._every = [self._handle.get_buffer(rank, self._shape, dtype) for rank in range(ranks)]
            torch.cuda.synchronize()
        else:
            self._every = _mapped(self._shape, dtype, group)
            self.own = self._every[dist.get_rank(group)]
        addresses = [every.data_ptr() for every in self._every]
        self.pointers = torch.tensor(addresses, dtype=torch.int64, device=self.own.device)
        dist.barrier(group)  # all are zero before anyone writes

    def of(self, rank: int) -> Tensor:
        return self._every[rank]


def can_share() -> Answer:
    """Whether the ranks of one machine can reach one another's memory; needs no process group."""
    for one, other in itertools.permutations(range(torch.cuda.device_count()), 2):
        if not torch.cuda.can_device_access_peer(one, other):
            return Answer(False, f"GPU {one} cannot reach the memory of GPU {other}")
    return Answer(True)


def one_shot(group: dist.ProcessGroup | None = None) -> Callable[[Tensor], Tensor]:
    """torch's one-shot all-reduce as a function: x of any shape -> the sum, a new tensor; x is left as it is."""

    def run(buffer: SymmetricBuffer, x: Tensor, name: str) -> Tensor:
        return torch.ops.symm_mem.one_shot_all_reduce_copy(buffer.own[: x.numel()], x.view(-1), "sum", name)

    return _strategy(run, group)


def two_shot(group: dist.ProcessGroup | None = None) -> Callable[[Tensor], Tensor]:
    """torch's two-shot all-reduce as a function: x of any shape -> the sum, a new tensor; x is left as it is."""

    def run(buffer: SymmetricBuffer, x: Tensor, name: str) -> Tensor:
        shared = buffer.own[: x.numel()]
        shared.copy_(x.view(-1))
        return torch.ops.symm_mem.two_shot_all_reduce_(shared, "sum", name).clone()

    return _strategy(run, group)


def _strategy(
    run: Callable[[SymmetricBuffer, Tensor, str], Tensor], group: dist.ProcessGroup | None
) -> Callable[[Tensor], Tensor]:
    """`run` with one buffer a dtype, which grows where a larger x comes; so warm up before a graph is captured."""
    group = dist.group.WORLD if group is None else group
    buffers: dict[torch.dtype, SymmetricBuffer] = {}

    def all_reduce(x: Tensor) -> Tensor:
        flat = x.contiguous()
        held = buffers.get(x.dtype)
        if held is None or held.own.numel() < x.numel():
            size = max(SMALLEST // x.element_size(), 2 ** math.ceil(math.log2(max(1, x.numel()))))
            held = buffers[x.dtype] = SymmetricBuffer((size,), x.dtype, group)
        return run(held, flat, group.group_name).view(x.shape)

    return all_reduce


def _mapped(shape: tuple[int, ...], dtype: torch.dtype, group: dist.ProcessGroup) -> list[Tensor]:
    """The tensor of every rank in one file that all of them map, whose name is gone once they have."""
    ranks, count = dist.get_world_size(group), math.prod(shape)
    names = [""]
    if dist.get_rank(group) == 0:
        handle, names[0] = tempfile.mkstemp(prefix="labllm-symmetric-", dir=_memory_folder())
        os.truncate(handle, max(1, ranks * count) * dtype.itemsize)
        os.close(handle)
    dist.broadcast_object_list(names, dist.get_global_rank(group, 0), group)
    whole = torch.from_file(names[0], shared=True, size=max(1, ranks * count), dtype=dtype)
    dist.barrier(group)
    if dist.get_rank(group) == 0:
        os.unlink(names[0])
    return [whole[rank * count : (rank + 1) * count].view(shape) for rank in range(ranks)]


def _memory_folder() -> str | None:
    return "/dev/shm" if os.path.isdir("/dev/shm") else None
