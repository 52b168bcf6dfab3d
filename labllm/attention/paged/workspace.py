"""Room for the partial answers of split-KV decode: what programs leave for the merge.

A workspace fits one batch, and its size fixes the number of splits, so a captured graph may hold it. `Workspaces` gives
out one for every batch that comes and all of them in one memory, since the launches of a model follow one another on a
stream.

Cost: (D + 1) floats for each query head and range. As ranges are only as many as fill the GPU, that is a few megabytes
for any batch and length. Invariant: counters are zero between launches, whichever workspace they belonged to. It loses
where two streams decode at once: give each its own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from labllm.attention.paged.tiles import num_splits
from labllm.hardware import this_machine


@dataclass(frozen=True, eq=False)
class Workspace:
    """Room for B sequences.

    partial   [B, Hkv, splits, G, D] float32   each range's answer
    lse       [B, Hkv, splits, G] float32      each range's log-sum-exp, in units of log 2; -inf where it has no keys
    arrivals  [B, Hkv] int32                   ranges finished; zero between launches, so launches must not overlap
    """

    partial: Tensor
    lse: Tensor
    arrivals: Tensor

    @property
    def tensors(self) -> tuple[Tensor, Tensor, Tensor]:
        """partial, lse and arrivals."""
        return self.partial, self.lse, self.arrivals

    @property
    def splits(self) -> int:
        """Programs that share one (sequence, KV head)."""
        return self.lse.shape[2]

    @classmethod
    def of(cls, q: Tensor, k_cache: Tensor, max_seq_len: int, splits: int | None = None) -> Workspace:
        """For q [B, Hq, D] and k_cache [num_blocks, block_size, Hkv, D]; splits by default from the device's size."""
        shape = _shape(q, k_cache, max_seq_len, splits)
        return cls(
            torch.empty(*shape, q.shape[2], dtype=torch.float32, device=q.device),
            torch.empty(shape, dtype=torch.float32, device=q.device),
            torch.zeros(shape[:2], dtype=torch.int32, device=q.device),
        )


class Workspaces:
    """Workspaces of one device for any batch, cut from one memory that doubles when a batch needs more.

    What was handed out stays where it is, for a captured graph may hold it.
    """

    def __init__(self) -> None:
        self._made: dict[tuple[int, ...], Workspace] = {}
        self._memory: Workspace | None = None  # flat

    def of(self, q: Tensor, k_cache: Tensor, max_seq_len: int) -> Workspace:
        """As `Workspace.of`, the same for all lengths up to the next power of two."""
        longest = 1 << max(0, max_seq_len - 1).bit_length()
        key = (*q.shape, k_cache.shape[2], longest)
        if key not in self._made:
            self._made[key] = self._cut(_shape(q, k_cache, longest, None), q)
        return self._made[key]

    def _cut(self, shape: tuple[int, ...], q: Tensor) -> Workspace:
        sizes = (math.prod(shape) * q.shape[2], math.prod(shape), math.prod(shape[:2]))
        old = (0, 0, 0) if self._memory is None else tuple(map(len, self._memory.tensors))
        if self._memory is None or any(size > there for size, there in zip(sizes, old, strict=True)):
            partial, lse, arrivals = (
                max(there, 1 << (size - 1).bit_length()) for size, there in zip(sizes, old, strict=True)
            )
            self._memory = Workspace(
                torch.empty(partial, dtype=torch.float32, device=q.device),
                torch.empty(lse, dtype=torch.float32, device=q.device),
                torch.zeros(arrivals, dtype=torch.int32, device=q.device),
            )
        partial, lse, arrivals = (x[:size] for x, size in zip(self._memory.tensors, sizes, strict=True))
        return Workspace(partial.view(*shape, q.shape[2]), lse.view(shape), arrivals.view(shape[:2]))


def _shape(q: Tensor, k_cache: Tensor, max_seq_len: int, splits: int | None) -> tuple[int, ...]:
    """(B, Hkv, splits, G)."""
    (batch, q_heads, dim), kv_heads = q.shape, k_cache.shape[2]
    group = q_heads // kv_heads
    if splits is None:
        machine = this_machine(q.device.type)
        splits = num_splits(batch * kv_heads, max_seq_len, group, dim, q.element_size(), machine)
    return batch, kv_heads, splits, group
