"""How many sequences a device has room for: memory, minus weights, divided by the cache that one sequence may need.

    sequences = floor((utilisation * memory - weights) / (context * 2 layers Hkv D bytes))

All from shapes and datasheets; nothing is measured. It leaves activations and the allocator's own losses to the part
that `utilisation` keeps free, and it counts every sequence at its full context, as a contiguous cache reserves it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from labllm.models.config import ModelConfig
from labllm.models.count import kv_bytes_per_token, parameters
from labllm.ui.style import engineering

GPU_MEMORY_UTILIZATION = 0.9


@dataclass(frozen=True)
class Room:
    """A model of `config` on a device of `memory` bytes, each sequence with `context` tokens.

    Raises ValueError for a context or a memory that is not positive.
    """

    config: ModelConfig
    context: int
    memory: float
    dtype: torch.dtype = torch.bfloat16
    kv_dtype: torch.dtype = torch.bfloat16
    gpu_memory_utilization: float = GPU_MEMORY_UTILIZATION

    def __post_init__(self) -> None:
        if self.context < 1 or self.memory <= 0:
            raise ValueError(f"Room needs a context of at least 1 and memory; got {self.context}, {self.memory}.")

    @property
    def weights(self) -> int:
        """Bytes of all parameters."""
        return parameters(self.config).total * self.dtype.itemsize

    @property
    def per_sequence(self) -> int:
        """Bytes of K and V of one sequence at full context."""
        return self.context * kv_bytes_per_token(self.config, self.kv_dtype)

    @property
    def usable(self) -> float:
        """Bytes that weights and cache may take together."""
        return self.gpu_memory_utilization * self.memory

    @property
    def num_seqs(self) -> int:
        """Sequences that fit beside the weights; 0 where not even the weights fit."""
        return max(0, int((self.usable - self.weights) // self.per_sequence))

    def verdict(self, batch: int) -> str:
        """Whether `batch` sequences fit, in a sentence."""
        needed = self.weights + batch * self.per_sequence
        each = f"A sequence of {self.context:,} tokens takes {engineering(self.per_sequence, 'B')} of cache"
        if self.usable < self.weights:
            return f"{each}, and the weights alone, {engineering(self.weights, 'B')}, do not fit."
        room = f"{each}; beside {engineering(self.weights, 'B')} of weights there is room for {self.num_seqs}"
        fits, not_fits = ("fits", "does not fit") if batch == 1 else ("fit", "do not fit")
        if needed <= self.usable:
            return f"{room}: {batch} {fits}, and {engineering(self.usable - needed, 'B')} stay free."
        return f"{room}: {batch} {not_fits}, by {engineering(needed - self.usable, 'B')}."

    def bar(self, batch: int) -> dict[str, float]:
        """Bytes by part for `batch` sequences, as `ui.memory` draws them."""
        return {"weights": float(self.weights), "KV cache": float(batch * self.per_sequence)}
