"""The numbers of a chart as a table: one row a record, units in the headers, states in words.

`frame` gives a pandas DataFrame with numbers, to compute with; `html` gives it formatted, in the notebook's own
colours, so that it reads in a dark notebook too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

import pandas as pd

from labllm.bench import Ladder, Record
from labllm.ui.series import NOT_TIMED, field, here_name, series
from labllm.ui.style import count

CELL = "padding:.15em .7em;border-bottom:1px solid rgba(128,128,128,.35);"
SHORT, FRAME = 16, "labllm-rows"  # rows that are shown without a frame
TABLE = "border-collapse:collapse;color:inherit;background:transparent;font-size:.95em;line-height:1.35"


def frame(
    ladder: Ladder, records: Iterable[Record], x: str, here: str | None = None, metric: str | None = None
) -> pd.DataFrame:
    """Columns: machine, rung, the field, time, the useful GB/s and GFLOP/s, percent of the ceiling, error, state.

    A `metric` that some of the records carry is a column of its own, before the time; any other name adds none.
    Time is in µs, and in s where every record took a second at least.
    The ceiling is the measured one where the record knows it, else the datasheet's, and `of` says which.
    """
    here = here or here_name()
    axis = field(ladder, x)
    records = list(records)
    slow = min((r.seconds for r in records if r.seconds), default=0.0) >= 1
    time, scale = ("time (s)", 1.0) if slow else ("time (µs)", 1e6)
    units = [r.metrics[metric].unit for r in records if metric in r.metrics]
    named = [f"{metric} ({units[0]})" if units[0] else metric] if units else []
    rows = [
        {
            "machine": s.machine,
            "rung": r.rung,
            axis.title: r.workload[x],
            **{title: _metric(r, metric) for title in named},
            time: _scaled(r.seconds, scale),
            "GB/s": _scaled(r.bandwidth, 1e-9),
            "GFLOP/s": _scaled(r.flop_rate, 1e-9),
            "% of limit": _scaled(r.of_ceiling or r.of_datasheet, 100),
            "limit": _limit(r),
            "error": r.error,
            "state": state(r, s.old),
        }
        for s in series(ladder, records, x, here)
        for r in sorted((*s.done, *s.missing), key=lambda r: (isinstance(r.workload[x], str), r.workload[x]))
    ]
    columns = ["machine", "rung", axis.title, *named, time, "GB/s", "GFLOP/s", "% of limit", "limit", "error", "state"]
    table = pd.DataFrame(rows, columns=columns)
    return table.drop(
        columns=[
            c for c in ("GB/s", "GFLOP/s", "% of limit", "limit") if not len(table) or not table[c].astype(bool).any()
        ]
    )


def state(record: Record, old: bool = False) -> str:
    """What became of a measurement, in words, with its reason and its warnings."""
    words = [record.status if record.status != "ok" or record.time else NOT_TIMED]
    if record.reason and record.status != "ok":
        words[0] += f": {record.reason}"
    words += ["older code"] if old else []
    words += ["shared GPU"] if record.host.shared else []
    words += ["virtual clock"] if "virtual" in record.method else []
    words += ["with launch"] if "with launch" in record.method else []
    return "; ".join([*words, *record.flags])


def html(table: pd.DataFrame) -> str:
    """The table as HTML that takes the notebook's colours; numbers to three digits, right-aligned."""
    if table.empty:
        return ""
    numeric = [pd.api.types.is_numeric_dtype(table[c]) for c in table.columns]
    head = _row("th", table.columns, numeric)
    body = "".join(_row("td", row, numeric) for row in table.itertuples(index=False))
    return f'<table style="{TABLE}"><thead>{head}</thead><tbody>{body}</tbody></table>'


def boxed(table: pd.DataFrame) -> str:
    """The table as HTML: whole where it is short, else within a frame of its own in which it scrolls under its head."""
    if len(table) <= SHORT:
        return html(table)
    head = f"<style>.{FRAME} th{{position:sticky;top:0;background:var(--jp-layout-color0, Canvas)}}</style>"
    style = "max-height:24em;max-width:100%;width:fit-content;overflow:auto;border:1px solid rgba(128,128,128,.5)"
    return f'{head}<div class="{FRAME}" style="{style}">{html(table)}</div><small>{len(table)} rows: scroll</small>'


def _row(tag: str, values: Iterable[Any], numeric: Sequence[bool]) -> str:
    last = len(numeric) - 1
    styles = [
        f"text-align:{'right' if number else 'left'};white-space:{'normal' if i == last else 'nowrap'};{CELL}"
        for i, number in enumerate(numeric)
    ]
    cells = (f'<{tag} style="{style}">{escape(_text(v))}</{tag}>' for style, v in zip(styles, values, strict=True))
    return f"<tr>{''.join(cells)}</tr>"


def _scaled(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor


def _metric(record: Record, name: str) -> float | None:
    found = record.metrics.get(name)
    return None if found is None else _scaled(found.value, 100.0 if found.unit == "%" else 1.0)


def _limit(record: Record) -> str:
    return "measured" if record.of_ceiling else "datasheet" if record.of_datasheet else ""


def _text(value: Any) -> str:
    if value is None or value != value:
        return "–"
    if isinstance(value, float):
        if value and abs(value) < 1e-3:
            return f"{value:.1e}"
        return f"{value:,.3g}" if abs(value) < 999.5 else f"{value:,.0f}"
    return count(value)
