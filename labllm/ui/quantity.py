"""What a chart can put on its value axis: time, bandwidth, FLOP/s, speed-up, memory, percent of the ceiling, named
metrics.

A quantity reads one record (and, for a speed-up, the baseline's record on the same workload and machine) and knows
its unit, its range from p10 to p90, the limit that the roof sets, and the verb that puts it into a sentence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from labllm.bench import Record

Value = Callable[[Record, Record | None], float | None]


@dataclass(frozen=True)
class Quantity:
    """`value(record, baseline)` in `unit`; `at(record, seconds)` gives it for another time, for bars and limits."""

    name: str
    title: str
    unit: str
    at: Callable[[Record, float, Record | None], float | None]
    verb: str
    log: bool = False
    falls: bool = False  # a smaller value is the better one
    needs_time: bool = True
    has_limit: bool = True

    def value(self, record: Record, baseline: Record | None = None) -> float | None:
        """The figure at the median, or None where the record has none."""
        if record.status != "ok" or (self.needs_time and record.time is None):
            return None
        return self.at(record, record.seconds or 0.0, baseline)

    def spread(self, record: Record, baseline: Record | None = None) -> tuple[float, float] | None:
        """The figure at p10 and p90, smaller first."""
        if not self.needs_time or record.time is None or record.status != "ok":
            return None
        ends = [self.at(record, s, baseline) for s in (record.time.p10, record.time.p90)]
        return None if None in ends else (min(ends), max(ends))  # type: ignore[type-var, return-value]

    def limit(self, record: Record, baseline: Record | None = None) -> tuple[float, str] | None:
        """What the roof would allow on this workload, and whose roof it is: 'measured' or 'datasheet'."""
        share, source = (record.of_ceiling, "measured") if record.of_ceiling else (record.of_datasheet, "datasheet")
        if not self.has_limit or not share or record.time is None:
            return None
        value = self.at(record, record.time.median * share, baseline)
        return None if value is None else (value, source)


def _ratio(record: Record, seconds: float, baseline: Record | None) -> float | None:
    return baseline.seconds / seconds if baseline is not None and baseline.seconds and seconds else None


def _share(record: Record, seconds: float, baseline: Record | None) -> float | None:
    share = record.of_ceiling or record.of_datasheet
    return share * record.time.median / seconds if share and record.time else None


_ALL = (
    Quantity("time", "time", "s", lambda r, s, b: s, "takes", log=True, falls=True),
    Quantity("bandwidth", "bandwidth", "B/s", lambda r, s, b: r.compulsory.bytes / s or None, "moves"),
    Quantity("rate", "arithmetic rate", "FLOP/s", lambda r, s, b: r.compulsory.flops / s or None, "computes"),
    Quantity("speedup", "speed-up", "x", _ratio, "is", has_limit=False),
    Quantity("ceiling", "share of the ceiling", "%", _share, "reaches", has_limit=False),
    Quantity(
        "memory",
        "peak memory",
        "B",
        lambda r, s, b: r.peak_bytes,
        "needs",
        log=True,
        falls=True,
        needs_time=False,
        has_limit=False,
    ),
)
QUANTITIES = {q.name: q for q in _ALL}


def quantity(name: str, records: Iterable[Record] = ()) -> Quantity:
    """A quantity by its name, or the metric of that name that some of `records` carry; nothing measured refutes none.

    Raises ValueError where neither exists.
    """
    if name in QUANTITIES:
        return QUANTITIES[name]
    good = [r for r in records if r.status == "ok"]
    units = {r.metrics[name].unit for r in good if name in r.metrics}
    if good and not units:
        raise ValueError(
            f"no record has a metric {name!r}; choose one of {', '.join(QUANTITIES)} or a metric of the ladder"
        )

    def read(record: Record, seconds: float, baseline: Record | None) -> float | None:
        return record.metrics[name].value if name in record.metrics else None

    return Quantity(name, name, min(units, default=""), read, f"has {name}", needs_time=False, has_limit=False)
