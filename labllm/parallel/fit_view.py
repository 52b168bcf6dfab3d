"""Measured messages and the line alpha + bytes / beta through them, a colour a rung and machine, both axes logarithmic.

On such axes the line is flat where latency sets the time, and rises where bandwidth does; the bend between is at
alpha * beta bytes. Sizes that matter can be marked: what a model's layer sends, say.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure

from labllm.bench import Record
from labllm.parallel.communication import AlphaBeta, fit
from labllm.ui import Picture, show
from labllm.ui.labels import Label, margin, right_of
from labllm.ui.series import short_name
from labllm.ui.style import FONT, INK, MUTED, engineering, look, name_axes, page, ruler, value_axis

SIZE = "size"  # the workload's field, in bytes


class Fitted(NamedTuple):
    """Of one rung on one machine: seconds by bytes, and the line."""

    name: str
    seconds: Mapping[float, float]
    line: AlphaBeta

    @property
    def words(self) -> str:
        """The line's constants."""
        beta = "" if np.isinf(self.line.beta) else f" + bytes / ({engineering(self.line.beta, 'B/s')})"
        return f"{engineering(self.line.alpha, 's')}{beta}"


def lines(records: Iterable[Record]) -> list[Fitted]:
    """A line for each rung, ranks of a machine and dtype with times of two sizes; the quickest in the end first."""
    timed = [r for r in records if r.seconds]
    several = len({r.workload["dtype"] for r in timed}) > 1
    found: dict[str, dict[float, float]] = {}
    for r in timed:
        name = f"{r.rung} · {_machine(r)}" + (f", {r.workload['dtype']}" if several else "")
        found.setdefault(name, {})[float(r.workload[SIZE])] = r.seconds or 0.0
    fitted = [
        Fitted(name, dict(sorted(times.items())), fit(list(times), list(times.values())))
        for name, times in found.items()
        if len(times) > 1
    ]
    return sorted(fitted, key=lambda one: one.line.seconds(max(one.seconds)))


def _machine(record: Record) -> str:
    """'2 x H200', or '2 ranks on Intel Xeon, 2 cores'."""
    if record.host.kind == "cuda":
        return short_name(record.host.title)
    return f"{record.workload['ranks']} ranks on {short_name(record.host.name)}"


def fitted(records: Iterable[Record], title: str, marks: Mapping[str, float] | None = None) -> Picture:
    """The picture with its sentence; `marks` are bytes by name. Raises ValueError where no rung has two sizes."""
    found = lines(records)
    if not found:
        raise ValueError("a line needs timed records of two sizes; measure some first")
    return show(chart(found, title, marks or {}), conclusion(found))


def chart(found: list[Fitted], title: str, marks: Mapping[str, float]) -> Figure:
    """Points as measured, lines as fitted."""
    names = []
    for i, one in enumerate(found):
        last = max(one.seconds)
        names.append(Label(last, one.seconds[last], f"{one.name}\n{one.words}", look(i).color))
    caption = "Points: measured. Dashed: alpha + bytes / beta, fitted to them."
    fig, ax = page(title, caption=caption, right=margin(ruler(), names), strip=0.2 if marks else 0.0, left=0.85)
    sizes = [size for one in found for size in one.seconds]
    value_axis(ax, [*sizes, *marks.values()], "B", log=True, axis="x")
    value_axis(ax, [s for one in found for s in (*one.seconds.values(), one.line.seconds(min(sizes)))], "s", log=True)
    for i, one in enumerate(found):
        style, along = look(i), np.geomspace(min(one.seconds), max(one.seconds), 60)
        ax.plot(along, [one.line.seconds(size) for size in along], color=style.color, linestyle="--", linewidth=1.2)
        ax.plot(
            list(one.seconds), list(one.seconds.values()), linestyle="none", color=style.color, marker=style.marker,
            markersize=5,
        )  # fmt: skip
    for name, size in marks.items():
        ax.axvline(size, color=MUTED, linestyle=":", linewidth=1)
        ax.text(
            size, 1.01, name, transform=ax.get_xaxis_transform(), fontsize=FONT, color=INK, ha="center", va="bottom"
        )
    name_axes(ax, "bytes of the tensor", "time")
    right_of(ax, names)
    return fig


def conclusion(found: list[Fitted]) -> str:
    """Each line in words."""
    return " ".join(
        f"{one.name}: {one.words}; both terms cost the same at {engineering(one.line.balanced, 'B')}."
        if np.isfinite(one.line.balanced) and one.line.balanced
        else f"{one.name}: {one.words}."
        for one in found
    )
