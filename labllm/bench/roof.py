"""A roof: the bandwidth and the FLOP rates that a device reaches, by its datasheet, its records or as measured here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from labllm.devices import DeviceSpec
from labllm.roofline import Cost, attainable_seconds


@dataclass(frozen=True)
class Roof:
    """Bytes/s and FLOP/s by dtype of one device; `source` is where they come from.

    That is 'datasheet', 'measured' (here and now) or 'recorded'.
    """

    name: str
    source: str
    bandwidth: float
    flops: Mapping[str, float] = field(default_factory=dict)
    parts: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of_spec(cls, spec: DeviceSpec) -> Roof:
        """The datasheet's roof; its part 'link' is what passes to other devices, in bytes/s and direction."""
        return cls(spec.name, "datasheet", spec.bandwidth, dict(spec.flops), {"link": spec.link})

    def of(self, part: str) -> Roof | None:
        """The roof of work that is bound by one part, or None where that is not known."""
        return replace(self, bandwidth=self.parts[part]) if part in self.parts else None

    def seconds(self, cost: Cost, dtype: str) -> float | None:
        """The floor of `cost` in seconds, or None where the roof knows no rate for `dtype` and the work has FLOPs."""
        peak = self.flops.get(dtype)
        if peak is None:
            return cost.bytes / self.bandwidth if not cost.flops else None
        return attainable_seconds(cost, peak, self.bandwidth)
