"""Attend: the one call through which a model sees its keys and values.

A model computes q, k and v of the new tokens and hands them over; whoever implements `Attend` stores k and v (or not)
and returns the attention output. Recompute, contiguous cache, paged cache, quantised or sparse attention are all
implementations, and the model's code does not change. Those that keep a cache are `CacheAttend`: they store, then
attend, and a fused operation that stores keys and values itself asks for the second half alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Protocol

from torch import Tensor

from labllm.cache.kv_cache import KVCache
from labllm.cache.step import Step


class Attend(Protocol):
    """Grouped-query attention of a packed batch: query head h reads key/value head h // (Hq // Hkv)."""

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, layer: int, step: Step, window: int | None = None) -> Tensor:
        """q [T, Hq, D], k and v [T, Hkv, D] of the step's new tokens -> [T, Hq, D], scaled by D**-0.5.

        Causal, aligned bottom right: query i of Tq sees keys up to Tk - Tq + i, and with a window only the last
        `window` of those. Padding (seq_len 0) yields zeros. A model passes `window` only for layers that have one, so
        an implementation without windows may leave the argument out and then fails loudly instead of seeing too much.
        """
        ...


class CacheAttend(ABC):
    """An `Attend` that keeps keys and values in `cache`, and whose two halves can be had one by one."""

    cache: KVCache

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, layer: int, step: Step, window: int | None = None) -> Tensor:
        """q [T, Hq, D], k and v [T, Hkv, D] -> [T, Hq, D]; k and v are stored first. Raises as the two halves do."""
        self.check(step)
        self.cache.write(layer, k, v, step.slot_mapping)
        return self.attend(q, layer, step, window)

    @abstractmethod
    def check(self, step: Step) -> None:
        """Raise ValueError for a step that does not fit the cache, where looking costs nothing; once a step."""

    @abstractmethod
    def attend(self, q: Tensor, layer: int, step: Step, window: int | None = None) -> Tensor:
        """q [T, Hq, D] over the keys and values that the cache holds, this step's included -> [T, Hq, D]."""
