"""Attend: the one call through which a model sees its keys and values.

A model computes q, k and v of the new tokens and hands them over; whoever implements `Attend` stores k and v (or not)
and returns the attention output. Recompute, contiguous cache, paged cache, quantised or sparse attention are all
implementations, and the model's code does not change.
"""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

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
