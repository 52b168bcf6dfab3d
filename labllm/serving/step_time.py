"""How long a step takes, by formula: what a simulation charges for a step that nobody computes.

Of a step only four sums matter (`StepShape`), whatever mixture of prefill and decode it is. Its linear layers read all
weights once and do 2 FLOPs a weight and token; its attention reads every visible key and value once and does 4 Hq D
FLOPs a layer and query-key pair. Each takes the roofline's time at a share of the device's peaks, and every step pays
an overhead besides:

    seconds = overhead + max(2 T W / (ec F), b W / (em B)) + max(4 Hq D L pairs / (ec F), k keys / (em B)) + all-reduces

with T tokens, W weights of b bytes, k bytes of KV a token, F FLOP/s and B bytes/s of the device. Over n GPUs F and B
are n times as much, and each layer sums its activations twice: 2 L (latency + 2 (n - 1) / n T H b / link). A step of
decodes alone is one graph; one that reads prompts is launched kernel by kernel, while the step before it computes, and
takes at least what is left then of the host's time for that (`launch`).

Overhead, launch, em and ec come from measurements (`labllm.serving.calibration`). It loses where steps of one shape
differ: sliding windows, slow kernels at odd sizes, a host that is busy elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch

from labllm.devices import DeviceSpec
from labllm.models.config import ModelConfig
from labllm.models.count import kv_bytes_per_token, parameters
from labllm.roofline import Cost, causal_pairs

ALL_REDUCE_LATENCY = 5e-6  # seconds, an assumption: what a small all-reduce takes over NVLink


class StepShape(NamedTuple):
    """A step in four sums: new tokens, tokens sampled, keys read, and query-key pairs."""

    tokens: int
    sampled: int
    keys: int
    pairs: int

    @property
    def decodes(self) -> bool:
        """True where every sequence brings one token: then each query-key pair reads a key of its own."""
        return self.pairs == self.keys

    @classmethod
    def of(cls, chunks: Iterable[tuple[int, int, bool]]) -> StepShape:
        """Of chunks (num_computed, num_new, whether the last one asks for a token)."""
        tokens = sampled = keys = pairs = 0
        for computed, new, samples in chunks:
            tokens += new
            sampled += samples
            keys += computed + new
            pairs += computed + 1 if new == 1 else causal_pairs(new, computed + new)
        return cls(tokens, sampled, keys, pairs)


@dataclass(frozen=True)
class StepTime:
    """Seconds of a step of `config` on tensor_parallel_size devices of `spec`.

    overhead                                seconds of every step, whatever it computes
    launch                                  seconds that a step with prompts takes at least
    memory_efficiency, compute_efficiency   shares of the datasheet's bandwidth and FLOP/s that steps get

    Raises ValueError for shares outside 0 .. 1, a negative overhead, or a dtype that the device has no unit for.
    """

    config: ModelConfig
    spec: DeviceSpec
    dtype: str = "bfloat16"
    tensor_parallel_size: int = 1
    overhead: float = 0.0
    launch: float = 0.0
    memory_efficiency: float = 1.0
    compute_efficiency: float = 1.0

    def __post_init__(self) -> None:
        shares = self.memory_efficiency, self.compute_efficiency
        if (
            min(self.overhead, self.launch) < 0
            or not all(0 < share <= 1 for share in shares)
            or self.tensor_parallel_size < 1
        ):
            raise ValueError(
                "A step needs an overhead of at least 0, efficiencies in 0 .. 1 and one GPU at least; got "
                f"{self.overhead}, {shares} and {self.tensor_parallel_size}."
            )
        if self.spec.peak(self.dtype) is None:
            raise ValueError(f"{self.spec.name} has no unit for {self.dtype}; it has {', '.join(self.spec.flops)}.")

    @property
    def peak(self) -> float:
        """FLOP/s that the datasheets promise, all devices together."""
        return (self.spec.peak(self.dtype) or 0.0) * self.tensor_parallel_size

    @property
    def bandwidth(self) -> float:
        """Bytes a second that the datasheets promise, all devices together."""
        return self.spec.bandwidth * self.tensor_parallel_size

    def num_blocks(self, block_size: int, gpu_memory_utilization: float = 0.9) -> int:
        """Blocks of KV cache beside the weights. Raises ValueError where not even the weights fit."""
        memory = gpu_memory_utilization * self.spec.memory * self.tensor_parallel_size
        weights = parameters(self.config).total * self._dtype.itemsize
        blocks = int((memory - weights) // (block_size * kv_bytes_per_token(self.config, self._dtype)))
        if blocks < 1:
            raise ValueError(
                f"{weights / 1e9:.0f} GB of weights leave no room for a KV cache in {memory / 1e9:.0f} GB: "
                f"use more than {self.tensor_parallel_size} x {self.spec.name}."
            )
        return blocks

    def costs(self, shape: StepShape) -> tuple[Cost, Cost]:
        """(linear layers and head, attention)."""
        w, head, per_key, per_pair = self._coefficients
        flops = 2.0 * (w * shape.tokens + head * shape.sampled)
        return Cost(flops, (w + head) * self._dtype.itemsize), Cost(per_pair * shape.pairs, per_key * shape.keys)

    def seconds(self, shape: StepShape, before: float = 0.0) -> float:
        """Time of one step; launches hide behind the step before it, which took `before` seconds."""
        w, head, per_key, per_pair = self._coefficients
        flops, bandwidth = self._rates
        linear = max(2.0 * (w * shape.tokens + head * shape.sampled) / flops, self._weight_bytes / bandwidth)
        attention = max(per_pair * shape.pairs / flops, per_key * shape.keys / bandwidth)
        seconds = self.overhead + linear + attention + self.communication(shape.tokens)
        return seconds if shape.decodes else max(self.launch - before, seconds)

    def communication(self, tokens: int) -> float:
        """Seconds of all all-reduces of a step, 0 on one device."""
        n = self.tensor_parallel_size
        if n == 1:
            return 0.0
        moved = 2 * (n - 1) / n * tokens * self.config.hidden_size * self._dtype.itemsize
        return 2 * self.config.num_hidden_layers * (ALL_REDUCE_LATENCY + moved / self.spec.link)

    @cached_property
    def _dtype(self) -> torch.dtype:
        return getattr(torch, self.dtype)

    @cached_property
    def _coefficients(self) -> tuple[int, int, int, float]:
        """Weights of the layers, weights of the head, bytes a key, FLOPs a query-key pair."""
        found, config = parameters(self.config), self.config
        layers = found.attention + found.mlp + found.norms
        pair = 4.0 * config.num_attention_heads * config.head_dim * config.num_hidden_layers
        return layers, config.vocab_size * config.hidden_size, kv_bytes_per_token(config, self._dtype), pair

    @cached_property
    def _weight_bytes(self) -> int:
        return sum(self._coefficients[:2]) * self._dtype.itemsize

    @cached_property
    def _rates(self) -> tuple[float, float]:
        return self.compute_efficiency * self.peak, self.memory_efficiency * self.bandwidth
