"""The second roofline of attention: every query-key pair needs an exponential, and those have a rate of their own.

A pair costs 4 D FLOPs in matrix products and one exponential. Tensor cores do the first, the special function units the
second, at a rate some hundreds of times lower; at small D both take as long. With P FLOP/s and E exponentials/s

    overlapped            4 D / max(4 D / P, 1 / E)   FLOP/s
    one after the other   4 D / (4 D / P + 1 / E)     FLOP/s

Shah et al., "FlashAttention-3", 2024, section 3: a kernel comes above the second line only if one tile's exponentials
run while another tile is multiplied. Cost and invariant: a formula; it leaves out bytes, masks and the sums of the
softmax, so a kernel stays below. It does not bind decode, where bytes do.
"""

from __future__ import annotations

from typing import NamedTuple

from labllm.devices import KNOWN, TERA

EXPONENTIALS = {"H100": 3.9 * TERA, "H200": 3.9 * TERA}
"""Exponentials a second: 132 SMs x 16 special functions a clock x 1.83 GHz (CUDA C++ Programming Guide, arithmetic
throughput of compute capability 9.0; the product as rounded in FlashAttention-3, 2024, section 3; H200 has H100's
chip).
"""


class Ceiling(NamedTuple):
    """FLOP/s of attention at a head_dim: by products alone, by exponentials alone, by both overlapped or in turn."""

    head_dim: int
    products: float
    exponentials: float

    @property
    def overlapped(self) -> float:
        return min(self.products, self.exponentials)

    @property
    def in_turn(self) -> float:
        return 1 / (1 / self.products + 1 / self.exponentials)


def ceiling(head_dim: int, device: str = "H200", dtype: str = "bfloat16") -> Ceiling:
    """The ceilings of a device by datasheet. Raises ValueError where no rate of exponentials or products is known."""
    spec = next((s for s in KNOWN if s.name == device), None)
    peak = spec.peak(dtype) if spec else None
    if device not in EXPONENTIALS or peak is None:
        raise ValueError(f"known are {', '.join(EXPONENTIALS)} with their datasheet's dtypes, got {device} in {dtype}")
    if head_dim < 1:
        raise ValueError(f"head_dim must be positive, got {head_dim}")
    return Ceiling(head_dim, peak, 4 * head_dim * EXPONENTIALS[device])
