"""Records as a table in a terminal: one row a rung and workload, figures with their units in the header."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.markup import escape
from rich.table import Table

from labllm.bench import Ladder, Record, label


def records_table(ladder: Ladder, records: Iterable[Record]) -> Table:
    """Workloads by their fields, rungs in the ladder's order; a record without a time shows its state and reason."""
    order = {rung.name: place for place, rung in enumerate(ladder.rungs)}
    table = Table(title=ladder.title)
    for heading in ("workload", "rung", "machine", "median (us)", "GB/s", "TFLOP/s", "of roof", "error", "state"):
        table.add_column(heading, justify="left" if heading in ("workload", "rung", "machine", "state") else "right")
    last = None
    for record in sorted(records, key=lambda r: (r.host.name, _fields(r), order.get(r.rung, len(order)))):
        workload = _label(ladder, record)
        table.add_row(
            "" if workload == last else escape(workload),
            escape(record.rung),
            escape(record.host.name),
            f"{record.seconds * 1e6:,.1f}" if record.seconds else "",
            f"{record.bandwidth / 1e9:,.0f}" if record.bandwidth else "",
            f"{record.flop_rate / 1e12:,.3g}" if record.flop_rate else "",
            f"{record.of_ceiling:.0%}" if record.of_ceiling else "",
            f"{record.error:.1e}" if record.error is not None else "",
            escape(record.reason or ", ".join((record.status, *record.flags, record.method))),
        )
        last = workload
    return table


def _fields(record: Record) -> list[tuple[bool, Any]]:
    """Values to sort by: numbers by size and before words, whatever fields an older record has."""
    return [(isinstance(value, str), value) for value in record.workload.values()]


def _label(ladder: Ladder, record: Record) -> str:
    try:
        return label(ladder.workload(**record.workload))
    except TypeError:
        return str(record.workload)
