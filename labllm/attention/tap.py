"""A tap on attention: it hands every call on and keeps what the layer brought, to be looked at afterwards.

The model does not change and neither do its answers; what costs is memory, one reference to q, k and v a layer and
step. It is for looking: keys of two prompts side by side, attention patterns, the range of values before quantising.
Invariant: `seen[layer]` holds the tensors of the layer's latest step, rotated by RoPE as a cache would store them.
"""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from labllm.attention.attend import Attend
from labllm.cache.step import Step


class Brought(NamedTuple):
    """What a layer handed to attention: q [T, Hq, D], k and v [T, Hkv, D]."""

    q: Tensor
    k: Tensor
    v: Tensor


class Tap:
    """An `Attend` that calls `attend` and remembers its arguments by layer in `seen`."""

    def __init__(self, attend: Attend) -> None:
        self.attend = attend
        self.seen: dict[int, Brought] = {}

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, layer: int, step: Step, window: int | None = None) -> Tensor:
        """As `Attend`: q [T, Hq, D], k and v [T, Hkv, D] -> [T, Hq, D]."""
        self.seen[layer] = Brought(q, k, v)
        windowed = {} if window is None else {"window": window}
        return self.attend(q, k, v, layer, step, **windowed)
