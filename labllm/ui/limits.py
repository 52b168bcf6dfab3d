"""The roof's limit in a chart of curves: a dotted line for each machine, and where its name belongs.

The frame is made for what was measured, and a limit stretches it no further than REACH. A logarithmic axis of rates has
room for more: there the way up to the limit is what a reader looks for, and a decade costs little. A limit that leaves
the frame has its name at the last place where the line can be seen; one that is never seen is named at the edge, as
beyond it.
"""

from __future__ import annotations

from itertools import pairwise

from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from labllm.ui.labels import Label
from labllm.ui.sheet import Sheet
from labllm.ui.style import MUTED

REACH = 3.0  # a limit far from every point may stretch the axis by this factor and no more
RATES, ROOM = ("bandwidth", "rate"), 100.0  # on a logarithmic axis of these by this one, where all of it then fits
WIDE = 30  # rates further apart than this stand on a logarithmic axis


def limits(ax: Axes, sheet: Sheet) -> tuple[list[Label], list[Label]]:
    """Draw the limits into an axes whose scales are set; the names for its right margin, and those for inside it."""
    outer, inner = [], []
    for limit in sheet.limits:
        line = sorted(limit.at.items())
        only = {"marker": "_", "markersize": 16} if len(line) == 1 else {}
        ax.plot(*zip(*line, strict=True), linestyle=":", color=MUTED, linewidth=1.4, **only)
        name, seen = sheet.limit_name(limit), last_seen(ax, line)
        if seen is None:
            outer.append(Label(*line[-1], f"{name}\nbeyond the frame"))
        elif seen == line[-1] and (len(line) > 1 or seen[0] == max(sheet.places.values())):
            outer.append(Label(*seen, name))
        else:
            inner.append(Label(*seen, name.replace(" (", "\n(")))
    return outer, inner


def span(sheet: Sheet, values: list[float]) -> tuple[list[float], bool]:
    """What the value axis has to hold, the points' `values` and the limits, and whether it is logarithmic."""
    low, high = min(values), max(values)
    lines = [list(limit.at.values()) for limit in sheet.limits]
    held = [*values, *(min(max(v, low / REACH), high * REACH) for line in lines for v in line)]
    wide = sheet.y.name in RATES and max(held) > WIDE * min(held)
    if wide:
        held += [v for line in lines if low / ROOM <= min(line) and max(line) <= high * ROOM for v in line]
    return held, sheet.y.log or wide


def along(ax: Axes, line: Line2D, steps: int = 8) -> list[tuple[float, float]]:
    """Points of a drawn line that lie in the frame, for names to keep clear of."""
    if line.get_transform() != ax.transData:
        return []
    frame, spots = ax.get_window_extent(), [tuple(p) for p in ax.transData.transform(line.get_xydata())]
    between = [
        (x0 + (x1 - x0) * k / steps, y0 + (y1 - y0) * k / steps)
        for (x0, y0), (x1, y1) in pairwise(spots)
        for k in range(steps)
    ]
    back = ax.transData.inverted()
    return [tuple(back.transform(spot)) for spot in (*between, *spots[-1:]) if frame.contains(*spot)]


def last_seen(ax: Axes, line: list[tuple[float, float]]) -> tuple[float, float] | None:
    """The last point of a line from left to right that lies in the frame, or None where none does."""
    frame = ax.get_window_extent()
    spots = [tuple(ax.transData.transform(point)) for point in line]
    if frame.y0 <= spots[-1][1] <= frame.y1:
        return line[-1]
    for (x0, y0), (x1, y1) in reversed(list(pairwise(spots))):
        for edge in (frame.y0, frame.y1) if y1 < y0 else (frame.y1, frame.y0):
            if min(y0, y1) <= edge <= max(y0, y1) and y0 != y1:
                x, y = ax.transData.inverted().transform((x0 + (x1 - x0) * (edge - y0) / (y1 - y0), edge))
                return float(x), float(y)
    return None
