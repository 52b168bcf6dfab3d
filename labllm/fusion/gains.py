"""What a fusion gained beside what its count of bytes promised, and what a compiler gained without a line from us.

Where memory sets the pace, the time falls as the bytes do. A gain below the promise says that something else set it
(arithmetic, caches that held the intermediates, a kernel short of its limit), a gain above it that the unfused launches
are short of theirs, or that there are many of them for few rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from labllm.bench import Record
from labllm.bench.recorded import H200, shipped
from labllm.ui.style import times

CLOSE = 1.1  # a compiler within this factor of the kernel is as good as the kernel


@dataclass(frozen=True)
class Gain:
    """Records of one workload: what it is called, its unfused rung, its kernel, and the compiler's where recorded."""

    name: str
    unfused: Record
    fused: Record
    compiled: Record | None

    @property
    def gained(self) -> float:
        """How many times as fast the kernel is as the unfused rung."""
        return self.unfused.time.median / self.fused.time.median

    @property
    def promised(self) -> float:
        """How many times the bytes the unfused rung moves."""
        return self.unfused.moved.bytes / self.fused.moved.bytes

    @property
    def behind(self) -> float | None:
        """How many times as long as the kernel the compiler's takes; None where that was not recorded."""
        return self.compiled.time.median / self.fused.time.median if self.compiled else None

    @property
    def row(self) -> dict[str, Any]:
        """One row of the table; what was not recorded stays empty."""
        return {
            "work": self.name,
            "unfused (µs)": 1e6 * self.unfused.time.median,
            "torch.compile (µs)": 1e6 * self.compiled.time.median if self.compiled else None,
            "one kernel (µs)": 1e6 * self.fused.time.median,
            "bytes promise (times)": self.promised,
            "gained (times)": self.gained,
        }


def gain(
    name: str, ladder: str, unfused: str = "eager", *, fused: str = "triton", compiled: str = "torch.compile",
    records: Iterable[Record] | None = None, host: str = H200, **workload: Any,
) -> Gain | None:  # fmt: skip
    """The gain on `ladder` at exactly this `workload` as `host` recorded it; None where a rung of it is missing.

    `records` (default: those that ship) are searched.
    """
    found = shipped(ladder, host) if records is None else records
    timed = {
        r.rung: r
        for r in found
        if (r.ladder, r.host.name) == (ladder, host) and r.time and workload.items() <= r.workload.items()
    }
    if unfused not in timed or fused not in timed:
        return None
    return Gain(name, timed[unfused], timed[fused], timed.get(compiled))


def vertical(rows: int, hidden: int, records: Iterable[Record] | None = None) -> list[Gain]:
    """The gains of the vertical chains at [rows, hidden] in bfloat16, as far as they are recorded."""
    kept = None if records is None else list(records)
    size = {"rows": rows, "hidden": hidden, "dtype": "bfloat16", "records": kept}
    found = (
        gain("add, RMSNorm, written out", "add-rms-norm", **size),
        gain("add, RMSNorm", "add-rms-norm", "F.rms_norm", **size),
        gain("add, RMSNorm, quantised", "add-rms-norm-quantize", codes="float8", **size),
        gain("add, LayerNorm, GELU", "add-layer-norm-gelu", **size),
        gain("SiLU, product", "swiglu", activation="silu", **size),
    )
    return [g for g in found if g]


def conclusion(gains: Sequence[Gain]) -> str:
    """Where fusing gains most and least, and where the compiler is as good as the kernel."""
    most, least = max(gains, key=lambda g: g.gained), min(gains, key=lambda g: g.gained)
    text = f"Fusing gains most for {most.name}, {_factor(most.gained)}"
    text += f", and least for {least.name}, {_factor(least.gained)}." if len(gains) > 1 else "."
    judged = [g for g in gains if g.behind is not None]
    behind = [f"{g.name} ({_factor(g.behind)} as long)" for g in judged if g.behind > CLOSE]
    if judged and not behind:
        return f"{text} The compiler is as good everywhere, within {CLOSE - 1:.0%}."
    if behind:
        text += f" The compiler is behind for {'; '.join(behind)}"
        text += "." if len(behind) == len(judged) else f", and as good elsewhere, within {CLOSE - 1:.0%}."
    return text


def _factor(value: float) -> str:
    """Near 1 with the digits that count there."""
    return f"{value:.2f}x" if value < 1.95 else times(value)
