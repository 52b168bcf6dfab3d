"""Attention over a paged KV cache by the kernels that read pages in place.

A step of decodes (one new token a sequence) is one launch a layer, asks nothing of the host and may be captured in a
CUDA graph: padding is seq_len 0 and slot -1. In a mixed step the decodes take that launch too, and longer queries are
gathered and attended densely. Where the kernels do not compile (no GPU, or an old one) everything is gathered.

Invariant: the same answers as `GatherAttention`, within the dtype's rounding. It loses on prompts: a long query over
a paged prefix copies its keys first.
"""

from __future__ import annotations

import torch
from torch import Tensor

from labllm.attention.attend import CacheAttend
from labllm.attention.paged.layout import MAX_GROUP, MAX_HEAD_DIM
from labllm.attention.paged.split import Workspace, split_decode_once
from labllm.attention.paged_torch import GatherAttention, gather, key_slots
from labllm.attention.runs import Run, attend_run, plan
from labllm.cache.kv_cache import KVCache
from labllm.cache.step import Step
from labllm.hardware import triton_mode

KERNEL_DTYPES = (torch.float32, torch.float16, torch.bfloat16)


class PagedAttention(CacheAttend):
    """An `Attend` that keeps keys and values in `cache`."""

    def __init__(self, cache: KVCache) -> None:
        self.cache = cache
        self._gathered = GatherAttention(cache)
        self._workspaces: dict[tuple[int, ...], Workspace] = {}

    def attend(self, q: Tensor, layer: int, step: Step, window: int | None = None) -> Tensor:
        """q [T, Hq, D] over the cached keys and values, this step's included -> [T, Hq, D]."""
        if not self._kernels_take(q, self.cache.k(layer)):
            return self._gathered.attend(q, layer, step, window)
        if step.decodes:
            return self._decode(q, layer, step, slice(None), window)
        return torch.cat([self._run(run, q[run.tokens], layer, step, window) for run in plan(step, window)])

    def check(self, step: Step) -> None:
        """Raise ValueError for a table that does not fit its sequence or the cache; on a GPU nothing is looked at."""
        if step.seq_lens.device.type == "cpu":
            self._gathered.check(step)

    def _kernels_take(self, q: Tensor, k_cache: Tensor) -> bool:
        fits = q.shape[2] <= MAX_HEAD_DIM and q.shape[1] // k_cache.shape[2] <= MAX_GROUP and q.dtype in KERNEL_DTYPES
        return fits and triton_mode(q.device.type) == "compiled"

    def _run(self, run: Run, q: Tensor, layer: int, step: Step, window: int | None) -> Tensor:
        if run.query_len == 1:
            return self._decode(q, layer, step, run.sequences, window)
        table, lens = step.block_table[run.sequences], step.seq_lens[run.sequences]
        slots = key_slots(table, lens, self.cache.block_size, run.first_key, run.end_key)
        return attend_run(run, q, gather(self.cache.k(layer), slots), gather(self.cache.v(layer), slots))

    def _decode(self, q: Tensor, layer: int, step: Step, sequences: slice, window: int | None) -> Tensor:
        k_cache, v_cache = self.cache.k(layer), self.cache.v(layer)
        table, lens = step.block_table[sequences], step.seq_lens[sequences]
        workspace = self._workspace(q, k_cache, step.max_seq_len)
        return split_decode_once(q, k_cache, v_cache, table, lens, window, workspace)

    def _workspace(self, q: Tensor, k_cache: Tensor, max_seq_len: int) -> Workspace:
        """One a batch size and power of two of the longest length, shared by the layers, which follow one another."""
        bucket = 1 << max(0, max_seq_len - 1).bit_length()
        key = (len(q), q.shape[1], bucket)
        if key not in self._workspaces:
            self._workspaces[key] = Workspace.of(q, k_cache, bucket)
        return self._workspaces[key]
