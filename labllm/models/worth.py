"""Which part of a layer is worth a kernel by hand: its share of the time, and how far it is from its roof.

Amdahl: if a part takes the share s of the time and reaches the share r of what its roof allows, then a perfect kernel
for it makes the whole

    gain = 1 / (1 - s (1 - r))

times as fast. A large share with little room left gains little, and so does much room in a small share. Amdahl 1967;
the roof is the datasheet's, by `labllm.roofline`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from labllm.bench import Record

LADDER = "layer-parts"
ONCE = ("head",)  # parts that a model has once and not in every layer


@dataclass(frozen=True)
class Worth:
    """A part of a layer in one setting: seconds, share of the layer's time, share of its roof."""

    part: str
    setting: Mapping[str, int | str]
    seconds: float
    share: float
    of_roof: float

    @property
    def row(self) -> dict[str, float | int | str]:
        """One row of a table."""
        where = {name: self.setting[name] for name in ("queries", "context", "batch")}
        figures = {"share of the time (%)": 100 * self.share, "of its roof (%)": 100 * self.of_roof}
        return {"part": self.part, **where, **figures, "layer's gain (times)": self.gain}

    @property
    def gain(self) -> float:
        """How many times as fast the layer would be with a perfect kernel for this part."""
        return available(self.share, self.of_roof)


def available(share: float, of_roof: float) -> float:
    """Amdahl's gain. Raises ValueError for shares outside 0 .. 1; more than all of a roof counts as all of it."""
    if not 0 <= share <= 1 or of_roof <= 0:
        raise ValueError(f"a share lies between 0 and 1, and a part reaches something of its roof: {share}, {of_roof}")
    return 1 / (1 - share * (1 - min(1.0, of_roof)))


def worths(records: Iterable[Record]) -> list[list[Worth]]:
    """The parts of a layer by setting (model, queries, context, batch), from timed records of the ladder layer-parts.

    Settings that lack a time or a share of the roof for some part are left out.
    """
    settings: dict[tuple, dict[str, Record]] = {}
    for r in records:
        if r.ladder == LADDER and r.seconds and r.workload["part"] not in ONCE:
            rest = tuple((name, value) for name, value in sorted(r.workload.items()) if name != "part")
            kept = settings.setdefault(rest, {}).setdefault(r.workload["part"], r)
            if r.seconds < (kept.seconds or 0):
                settings[rest][r.workload["part"]] = r
    most = max((len(parts) for parts in settings.values()), default=0)
    return [
        _layer(dict(rest), parts.values())
        for rest, parts in settings.items()
        if len(parts) == most and all(r.of_datasheet for r in parts.values())
    ]


def extremes(parts: Sequence[Worth], most: int = 3) -> list[Worth]:
    """The `most` parts with the largest share of the time, then those with the largest gain, each once."""
    by_share = sorted(parts, key=lambda p: -p.share)[:most]
    by_gain = sorted(parts, key=lambda p: -p.gain)[:most]
    return by_share + [part for part in by_gain if part not in by_share]


def _layer(setting: Mapping[str, int | str], parts: Iterable[Record]) -> list[Worth]:
    timed: Sequence[tuple[str, float, float]] = [
        (r.workload["part"], r.seconds or 0, r.of_datasheet or 0) for r in parts
    ]
    whole = sum(seconds for _, seconds, _ in timed)
    return [Worth(part, setting, seconds, seconds / whole, of_roof) for part, seconds, of_roof in timed]
