"""Attention over a paged KV cache in plain torch: gather through the block tables, then attend as if it were dense.

The gather copies every key and value that the step reads, so a decode moves them three times (read, write, read again)
where a paged kernel reads them once in place. That makes it the plain rung: it shows what a block table means, and
whatever a kernel computes must equal it.

Invariant: a position past a sequence's end reads the sequence's last key once more, so a table past the length is
never read and no other sequence's memory is seen. It loses by its copies, and inside CUDA graphs: like all dense paths
here it looks at lengths on the host.
"""

from __future__ import annotations

import torch
from torch import Tensor

from labllm.attention.attend import CacheAttend
from labllm.attention.runs import Run, attend_run, plan
from labllm.cache.paged import PagedCache
from labllm.cache.step import Step


def key_slots(block_table: Tensor, seq_lens: Tensor, block_size: int, first_key: int, end_key: int) -> Tensor:
    """Slots of the positions first_key .. end_key - 1: block_table [B, max_blocks], seq_lens [B] -> [B, Tk] int64.

    Positions past the end name the last token's slot again; a sequence of no tokens names slot 0.
    """
    positions = torch.arange(first_key, end_key, device=seq_lens.device)
    positions = torch.minimum(positions, seq_lens[:, None].long() - 1).clamp_min(0)
    blocks = block_table.long().gather(1, positions // block_size)
    slots = blocks * block_size + positions % block_size
    return slots.where(seq_lens[:, None] > 0, 0)


def gather(cache: Tensor, slots: Tensor) -> Tensor:
    """cache [num_blocks, block_size, Hkv, D], slots [B, Tk] int64 -> [B, Tk, Hkv, D], a copy."""
    return cache.flatten(0, 1).index_select(0, slots.flatten()).unflatten(0, slots.shape)


class GatherAttention(CacheAttend):
    """An `Attend` that keeps keys and values in `cache`; plans a step once and reuses the plan in every layer."""

    def __init__(self, cache: PagedCache) -> None:
        self.cache = cache
        self._step: Step | None = None
        self._plans: dict[int | None, list[tuple[Run, Tensor]]] = {}

    def attend(self, q: Tensor, layer: int, step: Step, window: int | None = None) -> Tensor:
        """q [T, Hq, D] over the cached keys and values, this step's included -> [T, Hq, D]. Raises as `check`."""
        self.check(step)
        if window not in self._plans:
            self._plans[window] = [(run, self._slots(step, run)) for run in plan(step, window)]
        k_cache, v_cache = self.cache.k(layer), self.cache.v(layer)
        pieces = [
            attend_run(run, q[run.tokens], gather(k_cache, slots), gather(v_cache, slots))
            for run, slots in self._plans[window]
        ]
        return pieces[0] if len(pieces) == 1 else torch.cat(pieces)

    def _slots(self, step: Step, run: Run) -> Tensor:
        table, lens = step.block_table[run.sequences], step.seq_lens[run.sequences]
        return key_slots(table, lens, self.cache.block_size, run.first_key, run.end_key)

    def check(self, step: Step) -> None:
        """Raise ValueError when a table is too short for its sequence or names a block that the cache has not."""
        if step is not self._step:
            self._refuse(step)
            self._step, self._plans = step, {}

    def _refuse(self, step: Step) -> None:
        room = step.block_table.shape[1] * self.cache.block_size
        if step.max_seq_len > room:
            raise ValueError(f"A sequence has {step.max_seq_len} tokens but the block table has room for {room}.")
        needed = -(-step.seq_lens.long()[:, None] // self.cache.block_size)
        blocks = step.block_table[torch.arange(step.block_table.shape[1], device=needed.device) < needed]
        if blocks.numel() and not 0 <= int(blocks.min()) <= int(blocks.max()) < self.cache.num_blocks:
            raise ValueError(
                f"The cache has blocks 0 to {self.cache.num_blocks - 1}; "
                f"the step names {int(blocks.min())} to {int(blocks.max())}."
            )
