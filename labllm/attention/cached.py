"""Attention over a contiguous KV cache by torch's own scaled_dot_product_attention.

A step writes its new keys and values, then reads everything its sequences have stored: a decode moves
2 L Hkv D elements a sequence and layer for 4 L Hq D FLOPs, so it is bound by memory, while recompute pays for the
whole prompt again. Invariant: what a sequence's last query sees is exactly its seq_len first slots.
It loses where context lengths in a batch differ much (a masked batch reads every row to the longest), where rows are
not neighbours (they are gathered, a copy), and inside CUDA graphs: it looks at lengths on the host.
"""

from __future__ import annotations

import torch
from torch import Tensor

from labllm.attention.attend import CacheAttend
from labllm.attention.runs import Run, attend_run, plan
from labllm.cache.contiguous import ContiguousCache
from labllm.cache.step import Step


class CachedAttention(CacheAttend):
    """An `Attend` that keeps keys and values in `cache`; plans a step once and reuses the plan in every layer."""

    def __init__(self, cache: ContiguousCache) -> None:
        self.cache = cache
        self._step: Step | None = None
        self._rows: list[int] = []
        self._plans: dict[int | None, list[Run]] = {}

    def attend(self, q: Tensor, layer: int, step: Step, window: int | None = None) -> Tensor:
        """q [T, Hq, D] over the cached keys and values, this step's included -> [T, Hq, D]. Raises as `check`."""
        self.check(step)
        if window not in self._plans:
            self._plans[window] = plan(step, window)
        k_cache, v_cache = self.cache.k(layer), self.cache.v(layer)
        pieces = []
        for run in self._plans[window]:
            rows = _rows(self._rows[run.sequences])
            keys, values = (x[rows, run.first_key : run.end_key] for x in (k_cache, v_cache))
            pieces.append(attend_run(run, q[run.tokens], keys, values))
        return pieces[0] if len(pieces) == 1 else torch.cat(pieces)

    def check(self, step: Step) -> None:
        """Raise ValueError when the step's table is not one block a sequence, or does not fit the cache."""
        if step is not self._step:
            self._rows = self._rows_of(step)
            self._step, self._plans = step, {}

    def _rows_of(self, step: Step) -> list[int]:
        if step.block_table.shape[1] != 1:
            raise ValueError(
                "A contiguous cache needs a block table of one column, its row; "
                f"got {step.block_table.shape[1]} columns (build the step with Step.contiguous)."
            )
        if step.max_seq_len > self.cache.max_len:
            raise ValueError(f"A sequence has {step.max_seq_len} tokens but a cache row holds {self.cache.max_len}.")
        rows = step.block_table[:, 0].tolist()
        if max(rows) >= self.cache.num_seqs or min(rows) < 0:
            raise ValueError(f"The cache has rows 0 to {self.cache.num_seqs - 1}; the step names {rows}.")
        return rows


def _rows(rows: list[int]) -> slice | list[int]:
    neighbours = rows == list(range(rows[0], rows[0] + len(rows)))
    return slice(rows[0], rows[0] + len(rows)) if neighbours else rows
