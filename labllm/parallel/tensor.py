"""TensorParallel: a rank's place among those that share every layer, and how they exchange what they computed.

    reduce           x [...] on every rank -> the sum over ranks, on every rank
    gather           x [.., n, ..] -> [.., size n, ..], the ranks' parts one after the other
    reduce_scatter   x [size n, ...] -> this rank's n rows of the sum

An all-reduce of N bytes among n ranks moves 2 (n - 1) / n N bytes a rank, as a reduce-scatter and an all-gather do one
after the other. How the sum is made is a named strategy, since for the few kilobytes of a decode step only its latency
counts. Invariant: the same sum, bit by bit, on every rank, or greedy ids would drift apart.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from labllm.parallel import push, symmetric

_all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor  # the name since torch 2.13
_reduce_scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor

AllReduce = Callable[[Tensor], Tensor]
"""x of any shape -> the sum over ranks, of the same shape; x itself may be overwritten."""


@dataclass(frozen=True, eq=False)
class TensorParallel:
    """Rank `rank` of `size` in `group` (None: alone); `all_reduce` sums among them, and its name is `strategy`."""

    rank: int = 0
    size: int = 1
    group: dist.ProcessGroup | None = None
    all_reduce: AllReduce | None = None
    strategy: str = "torch.distributed"

    @classmethod
    def of(cls, group: dist.ProcessGroup | None = None, all_reduce: str = "torch.distributed") -> TensorParallel:
        """This process in `group` (None: all ranks), `mesh.get_group("tp")` say. Every rank of it must call this.

        Raises ValueError for a strategy that is not in ALL_REDUCE.
        """
        if all_reduce not in ALL_REDUCE:
            raise ValueError(f"all_reduce must be one of {', '.join(ALL_REDUCE)}; got {all_reduce!r}.")
        group = dist.group.WORLD if group is None else group
        return cls(dist.get_rank(group), dist.get_world_size(group), group, ALL_REDUCE[all_reduce](group), all_reduce)

    def reduce(self, x: Tensor) -> Tensor:
        """The sum of x over the ranks; x may be overwritten."""
        return x if self.size == 1 else self.all_reduce(x)

    def gather(self, x: Tensor, dim: int = 0) -> Tensor:
        """The ranks' x side by side along `dim`; all have one shape."""
        if self.size == 1:
            return x
        if isinstance(self.all_reduce, push.Push) and self.all_reduce.takes(x):
            out = self.all_reduce.gather(x).flatten(0, 1)
        else:
            out = x.new_empty(self.size * len(x), *x.shape[1:])
            _all_gather(out, x.contiguous(), group=self.group)
        return out if dim == 0 else torch.cat(out.chunk(self.size), dim)

    def reduce_scatter(self, x: Tensor) -> Tensor:
        """This rank's rows of the sum of x [size n, ...] -> [n, ...]."""
        if self.size == 1:
            return x
        out = x.new_empty(len(x) // self.size, *x.shape[1:])
        _reduce_scatter(out, x.contiguous(), group=self.group)
        return out


def distributed(group: dist.ProcessGroup) -> AllReduce:
    """torch.distributed's own: NCCL on GPUs, gloo on CPUs; in place."""

    def all_reduce(x: Tensor) -> Tensor:
        x = x.contiguous()
        dist.all_reduce(x, group=group)
        return x

    return all_reduce


ALL_REDUCE: dict[str, Callable[[dist.ProcessGroup], AllReduce]] = {
    "torch.distributed": distributed,
    "one-shot": symmetric.one_shot,
    "push": push.push,
}
