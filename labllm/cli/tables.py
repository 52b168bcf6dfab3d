"""Records as tables in a terminal: one table a machine and workload, one row a rung, what cannot run in one line below.

Figures carry their unit and keep three digits; the table fits 80 columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table

from labllm.bench import Ladder, Record, label

SCALES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""), (1e-3, "m"), (1e-6, "µ"), (1e-9, "n"))


def records_table(ladder: Ladder, records: Iterable[Record]) -> RenderableType:
    """The records of one ladder, machine by machine, workloads by their fields, rungs in the ladder's order."""
    groups: dict[tuple[str, str], list[Record]] = {}
    for record in sorted(records, key=lambda r: (r.host.name, _fields(r))):
        groups.setdefault((record.host.title, _label(ladder, record)), []).append(record)
    shown = [_table(ladder, host, workload, group) for (host, workload), group in groups.items()]
    return Group(f"[bold]{escape(ladder.title)}[/bold]", *shown)


def _table(ladder: Ladder, host: str, workload: str, records: list[Record]) -> RenderableType:
    order = {rung.name: place for place, rung in enumerate(ladder.rungs)}
    records = sorted(records, key=lambda r: order.get(r.rung, len(order)))
    table = Table(title=f"{escape(workload)}\n{escape(host)}", title_justify="left", title_style="", pad_edge=False)
    table.add_column("rung", no_wrap=True)
    for heading in ("time", "bytes", "FLOPs", "of roof", "error"):
        table.add_column(heading, justify="right", no_wrap=True)
    for record in records:
        if record.time is not None:
            table.add_row(escape(record.rung), *_figures(record))
    rows = [table] if table.row_count else [f"{escape(workload)}\n{escape(host)}"]
    return Padding(Group(*rows, *_remarks(records)), (1, 0, 0, 0))


def _figures(record: Record) -> tuple[str, ...]:
    return (
        _scaled(record.seconds, "s"),
        _scaled(record.bandwidth, "B/s"),
        _scaled(record.flop_rate, "FLOP/s"),
        f"{record.of_ceiling:.0%}" if record.of_ceiling else "",
        f"{record.error:.0e}" if record.error is not None else "",
    )


def _remarks(records: list[Record]) -> Iterator[str]:
    """One line for each reason that stands, with the rungs that share it."""
    reasons: dict[str, list[str]] = {}
    for record in records:
        for reason in (record.reason, *record.flags):
            if reason:
                reasons.setdefault(reason, []).append(record.rung)
    for reason, rungs in reasons.items():
        yield f"  {escape(', '.join(rungs))}: {escape(reason)}"


def _scaled(value: float | None, unit: str) -> str:
    if not value:
        return ""
    scale, prefix = next(((s, p) for s, p in SCALES if value >= s), SCALES[-1])
    return f"{value / scale:.3g} {prefix}{unit}"


def _fields(record: Record) -> list[tuple[bool, Any]]:
    """Values to sort by: numbers by size and before words, whatever fields an older record has."""
    return [(isinstance(value, str), value) for value in record.workload.values()]


def _label(ladder: Ladder, record: Record) -> str:
    try:
        return label(ladder.workload(**record.workload))
    except TypeError:
        return str(record.workload)
