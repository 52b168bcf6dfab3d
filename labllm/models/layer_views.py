"""A layer's rungs as a table: what each does, its launches, its time, and how far that is above the floor of its bytes.

Launches are counted where a GPU was there to be asked, operators elsewhere; what a rung did not count stays empty.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from labllm.bench import Ladder, Record
from labllm.ui.style import engineering, times

COUNTED = ("operators", "launches", "kernels")


def rows(ladder: Ladder, records: Iterable[Record]) -> list[dict[str, Any]]:
    """A row a timed rung, in the ladder's order."""
    timed = {r.rung: r for r in records if r.ladder == ladder.name and r.seconds}
    mine = [(rung, timed[rung.name]) for rung in ladder.rungs if rung.name in timed]
    counted = [name for name in COUNTED if any(name in r.metrics for _, r in mine)]
    table = []
    for rung, r in mine:
        row: dict[str, Any] = {"rung": rung.name}
        row |= {name: round(r.metrics[name].value) if name in r.metrics else None for name in counted}
        row["time (µs)"] = 1e6 * r.time.median
        row |= {"times its floor": 1 / r.of_ceiling} if r.of_ceiling else {}
        table.append(row | {"what it does": rung.about})
    return table


def conclusion(records: Sequence[Record], first: str = "eager", last: str = "cuda graph") -> str:
    """From the first rung to the last: time, and launches where both counted them; empty where one is missing."""
    timed = {r.rung: r for r in records if r.seconds}
    if first not in timed or last not in timed:
        return ""
    a, b = timed[first], timed[last]
    text = f"From {first} to {last}: {engineering(a.seconds, 's')} to {engineering(b.seconds, 's')}"
    text += f", {times(a.seconds / b.seconds)} as fast"
    for name in COUNTED:
        if name in a.metrics and name in b.metrics:
            text += f"; {a.metrics[name].value:,.0f} {name} to {b.metrics[name].value:,.0f}"
    return f"{text}.{_host(timed.values())}"


def _host(records: Iterable[Record]) -> str:
    """What a launch cost where the host launched: time over launches, from the least to the most."""
    launched = [r for r in records if "launches" in r.metrics and "graph" not in r.rung]
    each = sorted(r.time.median / r.metrics["launches"].value for r in launched)
    if not each:
        return ""
    least, most = (engineering(seconds, "s") for seconds in (each[0], each[-1]))
    return f" Without a graph a launch took {least if least == most else f'{least} to {most}'}, all in all."
