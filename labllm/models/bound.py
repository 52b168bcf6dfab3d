"""What bounds a step: the floor under its time on a given roof, and which limit sets it.

The parts of a step run one after another, so their floors add up: seconds = sum of max(FLOPs / peak, bytes /
bandwidth). A real step is slower: launches, exponentials and kernels that miss the roof come on top.

Formula: `labllm.roofline`. Invariant: a floor never sinks when the batch, the context or an element's bytes grow.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from labllm.bench import Roof
from labllm.models.config import ModelConfig
from labllm.models.cost import GROUPS, step_cost
from labllm.models.count import parameters
from labllm.roofline import DTYPE_BYTES, Cost, attainable_seconds, bound


@dataclass(frozen=True)
class Bound:
    """Costs by part of one step (all layers), under a bandwidth in bytes/s and a peak in FLOP/s."""

    costs: Mapping[str, Cost]
    peak: float
    bandwidth: float
    memory: float  # bytes that weights and KV cache hold
    batch: int
    queries: int

    def floor(self, *parts: str) -> float:
        """Least seconds of the named parts (default: of all), one after another."""
        return sum(attainable_seconds(self.costs[p], self.peak, self.bandwidth) for p in parts or self.costs)

    def cost(self, *parts: str) -> Cost:
        """Cost of the named parts together (default: of all)."""
        return sum((self.costs[p] for p in parts or self.costs), Cost())

    @property
    def tokens_per_second(self) -> float:
        """The most tokens a second: generated ones in decode, read ones in prefill."""
        return self.batch * self.queries / self.floor()

    @property
    def waiting(self) -> float:
        """Share of the floor that parts bound by memory take, 0 to 1."""
        memory = [p for p, cost in self.costs.items() if bound(cost, self.peak, self.bandwidth) == "memory"]
        return self.floor(*memory) / self.floor() if memory else 0.0

    @property
    def limit(self) -> str:
        """'memory' or 'compute': what most of the floor is spent on."""
        return "memory" if self.waiting >= 0.5 else "compute"

    @property
    def groups(self) -> dict[str, Cost]:
        """Cost by group: GEMMs, attention, norms."""
        return {group: self.cost(*parts) for group, parts in GROUPS.items()}


def arithmetic_of(roof: Roof, dtype: str) -> str:
    """The dtype in which `roof` computes on numbers kept in `dtype`: one no narrower where it has no unit for them.

    Raises ValueError where the roof knows none.
    """
    for candidate in (dtype, "float16", "bfloat16", "float32"):
        if roof.flops.get(candidate) and DTYPE_BYTES[candidate] >= DTYPE_BYTES[dtype]:
            return candidate
    raise ValueError(f"the roof of {roof.name} knows no rate for {dtype} or wider; it knows {', '.join(roof.flops)}")


def step_bound(
    config: ModelConfig, roof: Roof, dtype: str = "float16", batch: int = 1, queries: int = 1, context: int = 1
) -> Bound:
    """The bound of one step of a model on `roof`, weights, cache and activations kept in `dtype`.

    Raises ValueError where the roof knows no rate for it.
    """
    peak, element = roof.flops[arithmetic_of(roof, dtype)], DTYPE_BYTES[dtype]
    kv = 2 * config.num_hidden_layers * config.num_key_value_heads * config.head_dim * element
    memory = parameters(config).total * element + kv * batch * context
    return Bound(step_cost(config, batch, queries, context, element), peak, roof.bandwidth, memory, batch, queries)
