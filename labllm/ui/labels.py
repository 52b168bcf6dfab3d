"""Names beside the things that they name, moved apart until none hides another.

`right_of` writes one label a line in the right margin, with a thin leader back to the line's end; `beside` writes
one next to each point inside the axes. Cost: a pass over the labels; both are deterministic.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from labllm.ui.style import FONT, INK, MUTED, PAPER, POINT

NEAR = [(9, 0), (0, 10), (0, -10), (-9, 0), (8, 9), (8, -9), (-8, 9), (-8, -9)]  # points from the mark, right first
FAR = [
    (x * right, y * up)
    for x, y in ((14, 26), (30, 14), (40, 0), (20, 48), (60, 30))
    for right in (1, -1)
    for up in (1, -1)
]
SIDES = [
    (x, y, ("center", "left", "right")[(x > 0) - (x < 0)], ("center", "bottom", "top")[(y > 0) - (y < 0)])
    for x, y in NEAR + FAR
]
CROSSED = 5  # points from a mark within which a leader seems to be its own
LINE = 11.5  # points from one line of a label to the next
COLUMNS = 32


@dataclass(frozen=True)
class Label:
    """A text for the point (x, y) in data coordinates; the leader takes `color`."""

    x: float
    y: float
    text: str
    color: str = MUTED

    @property
    def lines(self) -> list[str]:
        parts = (textwrap.wrap(part, COLUMNS, break_long_words=False) for part in self.text.split("\n"))
        return [line for part in parts for line in part] or [""]


def margin(figure: Figure, labels: Sequence[Label]) -> float:
    """Inches that the right margin needs for these labels."""
    renderer = figure.canvas.get_renderer()  # type: ignore[attr-defined]
    probe = figure.text(0, 0, "", fontsize=FONT)
    widths = [0.0]
    for line in (line for label in labels for line in label.lines):
        probe.set_text(line)
        widths.append(probe.get_window_extent(renderer).width / figure.dpi)
    probe.remove()
    return max(widths) + 0.42


def right_of(ax: Axes, labels: Sequence[Label]) -> None:
    """Write the labels in the right margin of `ax`, in the order of their heights, without overlap."""
    if not labels:
        return
    box = ax.get_window_extent()
    points = 72 / ax.figure.dpi
    height = box.height * points
    ends = [ax.transData.transform((label.x, label.y)) for label in labels]
    wanted = [min(max((y - box.y0) * points, 0.0), height) for _, y in ends]
    placed = spread(wanted, [LINE * len(label.lines) for label in labels], height)
    for label, (end_x, _), y in zip(labels, ends, placed, strict=True):
        ax.annotate(
            "\n".join(label.lines),
            xy=(label.x, label.y),
            xycoords="data",
            xytext=(1, y / height),
            fontsize=FONT,
            color=INK,
            textcoords=ax.transAxes,
            va="center",
            ha="left",
            annotation_clip=False,
            linespacing=1.05,
        ).set_position((1 + 20 / (box.width * points), y / height))
        start = (end_x - box.x0) / box.width + 6 / (box.width * points)
        stop = 1 + 17 / (box.width * points)
        level = wanted[labels.index(label)] / height
        ax.plot(
            [start, stop], [level, y / height], transform=ax.transAxes, color=label.color, linewidth=0.8, clip_on=False
        )


def spread(wanted: Sequence[float], sizes: Sequence[float], room: float) -> list[float]:
    """Centres as near to `wanted` as fits: neighbours keep half of both sizes apart, in [0, room] where they fit."""
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    placed = list(wanted)
    floor = -LINE / 2
    for i in order:
        placed[i] = max(wanted[i], floor + sizes[i] / 2)
        floor = placed[i] + sizes[i] / 2
    roof = max(room + LINE / 2, sum(sizes) - LINE / 2)
    for i in reversed(order):
        placed[i] = min(placed[i], roof - sizes[i] / 2)
        roof = placed[i] - sizes[i] / 2
    return placed


def beside(
    ax: Axes,
    labels: Sequence[Label],
    taken: Sequence[tuple[float, float]] = (),
    boxes: Sequence[tuple[Bbox, float]] = (),
) -> None:
    """Write each label next to its point inside the axes, on the first of SIDES where it hides nothing.

    `taken` are further data points to keep clear, `boxes` pixels with what it costs to hide one of them. Where no side
    is free the label goes to the side that hides least; a leader through another mark counts as hiding that mark.
    """
    figure = ax.figure
    renderer = figure.canvas.get_renderer()  # type: ignore[attr-defined]
    box = ax.get_window_extent()
    pixel = figure.dpi * POINT
    blocked = [*boxes]
    marks = [tuple(ax.transData.transform((label.x, label.y))) for label in labels]
    blocked += [(around(ax, b.x, b.y, 8 * pixel), 4.0) for b in labels]
    blocked += [(around(ax, x, y, 2 * pixel), 1.0) for x, y in taken]
    for label, mark in zip(labels, marks, strict=True):
        others = [other for other in marks if other != mark]
        best = None
        for dx, dy, ha, va in SIDES:
            far = abs(dx) + abs(dy) > 20
            note = ax.annotate(
                "\n".join(label.lines),
                (label.x, label.y),
                xytext=(dx, dy),
                textcoords="offset points",
                ha=ha,
                va=va,
                fontsize=FONT,
                color=INK,
                linespacing=1.05,
                zorder=4,
                path_effects=[withStroke(linewidth=2.5, foreground=PAPER)],
                arrowprops={"arrowstyle": "-", "color": label.color, "lw": 0.8} if far else None,
            )
            note.update_positions(renderer)
            extent = Text.get_window_extent(note, renderer)  # the words alone, without the leader
            hidden = sum(w * overlap(extent, other) for other, w in blocked) + 20 * outside(extent, box)
            if far:
                middle = ((extent.x0 + extent.x1) / 2, (extent.y0 + extent.y1) / 2)
                hidden += sum(4 * (16 * pixel) ** 2 for o in others if aside(o, mark, middle) < CROSSED * pixel)
            if best is None or hidden < best[0] - 1e-9:
                if best is not None:
                    best[1].remove()
                best = (hidden, note, extent)
            else:
                note.remove()
            if not best[0]:
                break
        if best is not None:
            blocked.append((best[2], 4.0))


def around(ax: Axes, x: float, y: float, radius: float) -> Bbox:
    """The pixels within `radius` of a data point."""
    px, py = ax.transData.transform((x, y))
    return Bbox.from_extents(px - radius, py - radius, px + radius, py + radius)


def aside(point: tuple[float, float], start: tuple[float, float], end: tuple[float, float]) -> float:
    """How far a point lies from the straight line between two others."""
    (x, y), (x0, y0), (x1, y1) = point, start, end
    along = ((x - x0) * (x1 - x0) + (y - y0) * (y1 - y0)) / (math.dist(start, end) ** 2 or 1.0)
    part = min(1.0, max(0.0, along))
    return math.dist(point, (x0 + part * (x1 - x0), y0 + part * (y1 - y0)))


def overlap(a: Bbox, b: Bbox) -> float:
    """The area that two boxes share."""
    common = Bbox.intersection(a, b)
    return common.width * common.height if common is not None else 0.0


def outside(a: Bbox, box: Bbox) -> float:
    """The area of `a` that is not in `box`."""
    return a.width * a.height - overlap(a, box)
