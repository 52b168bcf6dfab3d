"""Attention over a paged KV cache by the kernels that read pages in place.

A step of decodes (one new token a sequence) is one launch a layer, or two where the sequences are few, asks nothing of
the host and may be captured in a CUDA graph: padding is seq_len 0 and slot -1. In a mixed step the decodes, which come
first, take that way, and all longer queries one launch of flash attention. Where the kernels do not compile (no GPU,
or an old one) everything is gathered.

Invariant: the same answers as `GatherAttention`, within the dtype's rounding. It loses on prompts without a prefix: on
keys that lie side by side the dense flash kernels are faster.
"""

from __future__ import annotations

from itertools import takewhile

import torch
from torch import Tensor

from labllm.attention.attend import CacheAttend
from labllm.attention.flash.paged import flash_paged
from labllm.attention.paged.layout import MAX_GROUP, MAX_HEAD_DIM
from labllm.attention.paged.split import decode
from labllm.attention.paged.workspace import Workspaces
from labllm.attention.paged_torch import GatherAttention
from labllm.cache.kv_cache import KVCache
from labllm.cache.step import Step
from labllm.hardware import triton_mode

KERNEL_DTYPES = (torch.float32, torch.float16, torch.bfloat16)


class PagedAttention(CacheAttend):
    """An `Attend` that keeps keys and values in `cache`."""

    def __init__(self, cache: KVCache) -> None:
        self.cache = cache
        self._gathered = GatherAttention(cache)
        self._workspaces = Workspaces()  # one for all layers, which follow one another
        self._mixed: tuple[Step, int, Tensor] | None = None

    def attend(self, q: Tensor, layer: int, step: Step, window: int | None = None) -> Tensor:
        """q [T, Hq, D] over the cached keys and values, this step's included -> [T, Hq, D]."""
        if not self._kernels_take(q, self.cache.k(layer)):
            return self._gathered.attend(q, layer, step, window)
        if step.decodes:
            return self._decode(q, layer, step, len(q), window)
        decodes, starts = self._split(step)
        longer = self._flash(q[decodes:], layer, step, decodes, starts, window)
        return torch.cat((self._decode(q[:decodes], layer, step, decodes, window), longer)) if decodes else longer

    def check(self, step: Step) -> None:
        """Raise ValueError for a table that does not fit its sequence or the cache; on a GPU nothing is looked at."""
        if step.seq_lens.device.type == "cpu":
            self._gathered.check(step)

    def _kernels_take(self, q: Tensor, k_cache: Tensor) -> bool:
        fits = q.shape[2] <= MAX_HEAD_DIM and q.shape[1] // k_cache.shape[2] <= MAX_GROUP and q.dtype in KERNEL_DTYPES
        return fits and triton_mode(q.device.type) == "compiled"

    def _split(self, step: Step) -> tuple[int, Tensor]:
        """(decodes that come first, cu_seqlens of the sequences behind them), found once a step."""
        if self._mixed is None or self._mixed[0] is not step:
            decodes = sum(1 for _ in takewhile(lambda lengths: lengths[0] == 1, step.lengths))
            self._mixed = step, decodes, step.cu_seqlens[decodes:] - decodes
        return self._mixed[1:]

    def _flash(self, q: Tensor, layer: int, step: Step, decodes: int, starts: Tensor, window: int | None) -> Tensor:
        """q [T', Hq, D] of the sequences behind the first `decodes`; starts: their cu_seqlens."""
        k_cache, v_cache = self.cache.k(layer), self.cache.v(layer)
        table, lens = step.block_table[decodes:], step.seq_lens[decodes:]
        return flash_paged(q, k_cache, v_cache, table, lens, starts, step.max_query_len, window)

    def _decode(self, q: Tensor, layer: int, step: Step, decodes: int, window: int | None) -> Tensor:
        """q [B', Hq, D] of the first `decodes` sequences."""
        k_cache, v_cache = self.cache.k(layer), self.cache.v(layer)
        table, lens = step.block_table[:decodes], step.seq_lens[:decodes]
        workspace = self._workspaces.of(q, k_cache, step.max_seq_len)
        return decode(q, k_cache, v_cache, table, lens, workspace, window)
