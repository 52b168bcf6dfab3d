"""The roofline: how fast work can possibly run, from two numbers of the work and two of the machine.

Work is a `Cost`: floating-point operations and bytes moved through main memory. A machine offers a peak rate and a
bandwidth. Whichever takes longer is the floor, and the ratio FLOPs / bytes (arithmetic intensity) says which one that
is.

Formula: Williams, Waterman, Patterson, "Roofline: an insightful visual performance model", CACM 52(4), 2009.
Invariant: costs add. It loses where neither limit binds: launch latency, too little work in flight, special
functions.
"""

from __future__ import annotations

from dataclasses import dataclass

DTYPE_BYTES = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "float8": 1, "int8": 1, "int4": 0.5}


@dataclass(frozen=True)
class Cost:
    """What a piece of work needs: `flops` floating-point operations, `bytes` moved through main memory."""

    flops: float = 0.0
    bytes: float = 0.0

    def __post_init__(self) -> None:
        if self.flops < 0 or self.bytes < 0:
            raise ValueError(f"a cost cannot be negative, got {self.flops} FLOPs and {self.bytes} bytes")

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.flops + other.flops, self.bytes + other.bytes)

    def __mul__(self, times: float) -> Cost:
        return Cost(self.flops * times, self.bytes * times)

    __rmul__ = __mul__

    @property
    def intensity(self) -> float:
        """Arithmetic intensity in FLOPs a byte (infinite when no byte moves)."""
        return self.flops / self.bytes if self.bytes else float("inf")


def attainable_seconds(cost: Cost, peak: float, bandwidth: float) -> float:
    """The floor in seconds: max(FLOPs / peak, bytes / bandwidth), with `peak` in FLOP/s and `bandwidth` in bytes/s."""
    _positive(peak, bandwidth)
    return max(cost.flops / peak, cost.bytes / bandwidth)


def attainable_rate(intensity: float, peak: float, bandwidth: float) -> float:
    """The roof in FLOP/s above an arithmetic intensity in FLOPs a byte: min(peak, intensity * bandwidth)."""
    _positive(peak, bandwidth)
    return min(peak, intensity * bandwidth)


def bound(cost: Cost, peak: float, bandwidth: float) -> str:
    """'memory' or 'compute': which limit sets the floor."""
    _positive(peak, bandwidth)
    return "compute" if cost.flops / peak > cost.bytes / bandwidth else "memory"


def ridge(peak: float, bandwidth: float) -> float:
    """The arithmetic intensity in FLOPs a byte at which the bound changes from memory to compute."""
    _positive(peak, bandwidth)
    return peak / bandwidth


def linear(tokens: int, inputs: int, outputs: int, element: float = 2, weight: float | None = None) -> Cost:
    """Cost of `[tokens, inputs] @ [inputs, outputs]`: 2MNK FLOPs; activations and weights each move once.

    `element` and `weight` are bytes an element of the activations and of the weights (default: the same).
    """
    weight = element if weight is None else weight
    moved = element * tokens * (inputs + outputs) + weight * inputs * outputs
    return Cost(2.0 * tokens * inputs * outputs, moved)


def causal_pairs(queries: int, keys: int) -> int:
    """Query-key pairs under a causal mask aligned bottom right: query i of Tq sees keys up to Tk - Tq + i."""
    if queries > keys:
        raise ValueError(f"a causal mask needs at least as many keys as queries, got {queries} queries and {keys} keys")
    return queries * (keys - queries) + queries * (queries + 1) // 2


def attention(
    batch: int,
    queries: int,
    keys: int,
    q_heads: int,
    kv_heads: int,
    head_dim: int,
    element: float = 2,
    causal: bool = True,
) -> Cost:
    """Cost of softmax(QK^T)V: 4 B Hq D FLOPs a query-key pair; Q, K, V are read once and the output written once.

    K and V count with the KV heads: grouped-query attention shares them, and that is its whole saving.
    """
    pairs = causal_pairs(queries, keys) if causal else queries * keys
    flops = 4.0 * batch * q_heads * head_dim * pairs
    moved = element * batch * head_dim * (2 * q_heads * queries + 2 * kv_heads * keys)
    return Cost(flops, moved)


def _positive(peak: float, bandwidth: float) -> None:
    if peak <= 0 or bandwidth <= 0:
        raise ValueError(f"peak and bandwidth must be positive, got {peak} FLOP/s and {bandwidth} bytes/s")
