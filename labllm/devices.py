"""Datasheet figures of known devices: the roof that the vendor promises, beside which measured ceilings are set.

Dense rates without sparsity, tensor cores where the dtype has them; bytes a second; links in bytes a second and
direction (NVLink where the card has it, else PCIe). Sources: the vendor's datasheets and architecture papers.
A rate missing from `flops` means that the device has no unit for that dtype.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

TERA, GIGA, GIB, KIB = 1e12, 1e9, 2**30, 2**10


@dataclass(frozen=True)
class DeviceSpec:
    """One device as its datasheet describes it: FLOP/s by dtype, bytes, bytes/s."""

    name: str
    capability: tuple[int, int]
    memory: float
    bandwidth: float
    link: float
    shared_memory: int
    flops: Mapping[str, float] = field(default_factory=dict)

    def peak(self, dtype: str) -> float | None:
        """Dense FLOP/s for `dtype`, or None where the device has no unit for it."""
        return self.flops.get(dtype)


def _spec(name: str, cc: tuple[int, int], gib: float, gbs: float, link: float, smem: int, **tera: float) -> DeviceSpec:
    rates = {dtype: rate * TERA for dtype, rate in tera.items()}
    return DeviceSpec(name, cc, gib * GIB, gbs * GIGA, link * GIGA, smem * KIB, rates)


# Tensor-core rates are those with float32 accumulation, as torch multiplies. float32 is the CUDA-core rate: TF32 is
# another arithmetic and the labs never use it unasked.
KNOWN: tuple[DeviceSpec, ...] = (
    _spec("T4", (7, 5), 16, 320, 16, 64, float32=8.1, float16=65, int8=130, int4=260),
    _spec("A10", (8, 6), 24, 600, 32, 99, float32=31.2, float16=125, bfloat16=125, int8=250, int4=500),
    _spec("L4", (8, 9), 24, 300, 32, 99, float32=30.3, float16=121, bfloat16=121, float8=242, int8=242),
    _spec("RTX 3090", (8, 6), 24, 936, 56.25, 99, float32=35.6, float16=71, bfloat16=71, int8=284),
    _spec("RTX 4090", (8, 9), 24, 1008, 32, 99, float32=82.6, float16=165, bfloat16=165, float8=330, int8=660),
    _spec("RTX 5090", (12, 0), 32, 1792, 64, 99, float32=104.8, float16=209, bfloat16=209, float8=419, int8=838),
    _spec("A100 40GB", (8, 0), 40, 1555, 300, 163, float64=19.5, float32=19.5, float16=312, bfloat16=312, int8=624),
    _spec("A100 80GB", (8, 0), 80, 2039, 300, 163, float64=19.5, float32=19.5, float16=312, bfloat16=312, int8=624),
    _spec("A800", (8, 0), 80, 2039, 200, 163, float64=19.5, float32=19.5, float16=312, bfloat16=312, int8=624),
    _spec(
        "H100", (9, 0), 80, 3350, 450, 227, float64=67, float32=67, float16=989, bfloat16=989, float8=1979, int8=1979
    ),
    _spec(
        "H200", (9, 0), 141, 4800, 450, 227, float64=67, float32=67, float16=989, bfloat16=989, float8=1979, int8=1979
    ),
    _spec(
        "B200",
        (10, 0),
        180,
        8000,
        900,
        227,
        float64=37,
        float32=75,
        float16=2250,
        bfloat16=2250,
        float8=4500,
        int8=4500,
    ),
)


OTHER_CARDS = {"LAPTOP", "MIG", "NVL", "D", "MAX"}


def spec_of(reported: str, memory: float) -> DeviceSpec | None:
    """The entry that fits a device name as the driver reports it ('NVIDIA A100-SXM4-80GB') and its memory in bytes.

    None for other cards of the same name (a laptop's, a slice of a card, H100 PCIe or NVL): their datasheets differ.
    """
    words = set(reported.upper().replace("-", " ").split())
    if words & OTHER_CARDS or {"PCIE", "H100"} <= words:
        return None
    fits = [s for s in KNOWN if {w for w in s.name.upper().split() if not w.endswith("GB")} <= words]
    named = [s for s in fits if s.name.upper().split()[-1] in words]
    return min(named or fits, key=lambda s: abs(s.memory - memory), default=None)
