"""Names for marks that stand in a crowd: a column of words beside it, with leaders that do not cross.

Marks nearer than REACH to one another make a crowd. Its names are stacked on the side where they hide least, and
exchanged until no exchange makes the leaders shorter: two leaders that cross always have a shorter exchange. Cost: a
few passes over the pairs of a crowd.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations, product

from matplotlib.axes import Axes
from matplotlib.patheffects import withStroke
from matplotlib.transforms import Bbox

from labllm.ui.labels import LINE, Label, around, beside, outside, overlap
from labllm.ui.style import FONT, INK, PAPER, POINT

REACH, FEW = 16, 3  # points; marks that make a crowd
ACROSS, ALONG = (24, 40, 60, 85), (0, -20, 20, -40, 40, -65, 65)  # points from the crowd to its column
STEPS = 12  # places along a leader that names keep clear
Place = tuple[float, float]
Weighed = tuple[Bbox, float]


def name_marks(ax: Axes, labels: Sequence[Label], taken: Sequence[Place] = ()) -> None:
    """Write every label by its mark: crowds in columns, the others beside. `taken` are data points to keep clear."""
    pixel = ax.figure.dpi * POINT
    groups = crowds(ax, labels)
    alone = [label for group in groups if len(group) < FEW for label in group]
    blocked = [(around(ax, label.x, label.y, 6 * pixel), 4.0) for label in labels]
    blocked += [(around(ax, x, y, 2 * pixel), 1.0) for x, y in taken]
    blocked += [(around(ax, label.x, label.y, 22 * pixel), 0.5) for label in alone]  # room for their own names
    columns: list[Weighed] = []
    for group in groups:
        if len(group) >= FEW:
            columns += column(ax, group, [*blocked, *columns])
    beside(ax, alone, taken, columns)


def crowds(ax: Axes, labels: Sequence[Label]) -> list[list[Label]]:
    """The labels in groups: each has a mark within REACH of another one of its group, and none of another group."""
    places = [ax.transData.transform((label.x, label.y)) for label in labels]
    groups = [{i} for i in range(len(labels))]
    for i, j in combinations(range(len(labels)), 2):
        if math.dist(places[i], places[j]) < REACH * POINT * ax.figure.dpi:
            one, other = (next(g for g in groups if k in g) for k in (i, j))
            if one is not other:
                groups.remove(other)
                one |= other
    return [[labels[i] for i in sorted(group)] for group in groups]


def column(ax: Axes, labels: Sequence[Label], blocked: Sequence[Weighed]) -> list[Weighed]:
    """Write one crowd's labels as a column where they hide least of `blocked`; what is taken by it and its leaders."""
    pixel = ax.figure.dpi * POINT
    marks = [tuple(ax.transData.transform((label.x, label.y))) for label in labels]
    box, side = _place(ax, marks, _size(ax, labels), blocked)
    edge = box.x0 if side > 0 else box.x1
    order = sorted(zip(uncrossed(marks, _slots(box, side, len(labels))), range(len(labels)), strict=True))
    base, used = box.y0, [(box, 4.0)]
    for _, i in order:
        label, (x, y) = labels[i], marks[i]
        height = LINE * pixel * len(label.lines)
        ax.annotate(
            "\n".join(label.lines), (label.x, label.y), textcoords="offset points", fontsize=FONT, color=INK, zorder=4,
            xytext=((edge - x) / pixel, (base + height / 2 - y) / pixel), linespacing=1.05,
            ha="left" if side > 0 else "right", va="center",
            path_effects=[withStroke(linewidth=2.5, foreground=PAPER)],
            arrowprops={
                "arrowstyle": "-", "color": label.color, "lw": 0.8, "shrinkA": 1, "shrinkB": 0,
                "relpos": (0 if side > 0 else 1, 0.5),
            },
        )  # fmt: skip
        passed = _along((x, y), (edge, base + height / 2))
        used += [(Bbox.from_bounds(*spot, 0, 0).padded(2 * pixel), 1.0) for spot in passed]
        base += height
    return used


def uncrossed(marks: Sequence[Place], slots: Sequence[Place]) -> list[Place]:
    """A slot for each mark, so that no two of the straight leaders cross."""
    order = sorted(range(len(marks)), key=lambda i: marks[i][1])
    given = dict(zip(order, sorted(slots, key=lambda slot: slot[1]), strict=True))
    better = True
    while better:
        better = False
        for i, j in combinations(range(len(marks)), 2):
            now = math.dist(marks[i], given[i]) + math.dist(marks[j], given[j])
            if math.dist(marks[i], given[j]) + math.dist(marks[j], given[i]) < now - 1e-6:
                given[i], given[j] = given[j], given[i]
                better = True
    return [given[i] for i in range(len(marks))]


def _place(ax: Axes, marks: Sequence[Place], size: Place, blocked: Sequence[Weighed]) -> tuple[Bbox, int]:
    """The box of a column, and the side of the crowd on which it stands: 1 right, -1 left."""
    pixel, frame = ax.figure.dpi * POINT, ax.get_window_extent()
    (left, right), (low, high) = ((min(values), max(values)) for values in zip(*marks, strict=True))
    best, crowd = None, Bbox.from_extents(left, low, right, high).padded(pixel)
    strangers = [(other, weight) for other, weight in blocked if weight == 4 and not crowd.overlaps(other)]
    for side, across, along in product((1, -1), ACROSS, ALONG):
        x = right + across * pixel if side > 0 else left - across * pixel - size[0]
        box = Bbox.from_bounds(x, (low + high - size[1]) / 2 + along * pixel, *size)
        hidden = sum(weight * overlap(box, other) for other, weight in blocked) + 20 * outside(box, frame)
        leaders = zip(marks, uncrossed(marks, _slots(box, side, len(marks))), strict=True)
        passed = [spot for mark, slot in leaders for spot in _along(mark, slot)]
        hidden += 30 * pixel**2 * sum(other.contains(*spot) for other, _ in strangers for spot in passed)
        cost = hidden + 2 * (across + abs(along)) * pixel
        if best is None or cost < best[0]:
            best = (cost, box, side)
    assert best is not None
    return best[1], best[2]


def _slots(box: Bbox, side: int, number: int) -> list[Place]:
    """Where the leaders of a column end, from its foot up."""
    return [(box.x0 if side > 0 else box.x1, box.y0 + (i + 0.5) * box.height / number) for i in range(number)]


def _along(start: Place, end: Place) -> list[Place]:
    """Places along a leader."""
    return [tuple(a + (b - a) * k / STEPS for a, b in zip(start, end, strict=True)) for k in range(STEPS)]


def _size(ax: Axes, labels: Sequence[Label]) -> Place:
    """Width and height of a column, in pixels."""
    probe, widths = ax.figure.text(0, 0, "", fontsize=FONT), []
    for line in (line for label in labels for line in label.lines):
        probe.set_text(line)
        widths.append(probe.get_window_extent(ax.figure.canvas.get_renderer()).width)
    probe.remove()
    return max(widths), LINE * POINT * ax.figure.dpi * sum(len(label.lines) for label in labels)
