"""A Gantt chart: who did what when, a row each, in groups that share one time axis.

Each kind of doing has its colour and its hatch; a kind named in `thin` (waiting, say) is a line instead of a bar. A
group's end is marked, so that two ways to do the same work can be set side by side: the shorter one won. It loses where
rows are many: a hundred is the most that one sees.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from labllm.ui.style import COLORS, FONT, HATCHES, INK, MUTED, PAPER, engineering, name_axes, page, value_axis, worded

Row = Mapping[str, Sequence[tuple[float, float]]]  # of each kind, (start, length)
Groups = Mapping[str, Sequence[Row]]
LOWEST, HIGHEST, GAP = 0.055, 0.17, 2.2  # inches a row at least and at most, and rows between groups
TALL = 4.6  # inches of all rows


def chart(
    groups: Groups, title: str, subtitle: str = "", *, thin: Collection[str] = (), unit: str = "s", caption: str = ""
) -> Figure:
    """`groups` maps each way to its rows, the first on top. Raises ValueError where nothing is done in a group."""
    kinds = list(dict.fromkeys(kind for rows in groups.values() for row in rows for kind in row))
    ends = {name: end(rows) for name, rows in groups.items()}
    total = sum(map(len, groups.values())) + GAP * (len(groups) - 1)
    height = min(TALL, max(LOWEST * total, min(HIGHEST * total, TALL)))
    fig, ax = page(title, subtitle, caption, height=max(0.8, height), left=1.0, right=0.9, strip=0.3)
    top, middles = 0.0, []
    for name, rows in groups.items():
        for number, row in enumerate(rows):
            _draw(ax, row, kinds, top + number, thin)
        bottom = top + len(rows) - 1
        ax.plot([ends[name]] * 2, [top - 0.5, bottom + 0.5], color=INK, linewidth=1.2, zorder=4)
        label = f" {engineering(ends[name], unit)}"
        ax.text(ends[name], (top + bottom) / 2, label, fontsize=FONT, color=INK, va="center", clip_on=False)
        middles.append((top + bottom) / 2)
        top = bottom + 1 + GAP
    value_axis(ax, [max(ends.values())], "" if worded(unit) else unit, log=False, axis="x")
    ax.set_xlim(0, 1.02 * max(ends.values()))
    ax.set_ylim(total - 0.3, -0.7)
    ax.set_yticks(middles, list(groups))
    ax.tick_params(axis="y", length=0)
    ax.grid(False, axis="y")
    name_axes(ax, "time" if unit == "s" else unit)
    ax.legend(
        handles=[_key(kind, kinds, thin) for kind in kinds], loc="lower left", bbox_to_anchor=(-0.01, 1.0),
        ncols=len(kinds), frameon=False, fontsize=FONT, borderpad=0.1, handlelength=1.6, columnspacing=1.4,
    )  # fmt: skip
    return fig


def end(rows: Sequence[Row]) -> float:
    """When the last row ends. Raises ValueError where no row does anything."""
    ends = [start + length for row in rows for spans in row.values() for start, length in spans]
    if not ends:
        raise ValueError("a group needs at least one row in which something is done")
    return max(ends)


def _draw(ax: Axes, row: Row, kinds: list[str], y: float, thin: Collection[str]) -> None:
    for kind, spans in row.items():
        look = _look(kind, kinds)
        if kind in thin:
            for start, length in spans:
                ax.plot([start, start + length], [y, y], color=MUTED, linewidth=0.8, zorder=2)
        else:
            ax.broken_barh(list(spans), (y - 0.4, 0.8), linewidth=0, zorder=3, **look)


def _look(kind: str, kinds: list[str]) -> dict[str, str]:
    number = kinds.index(kind)
    return {"facecolor": COLORS[number % len(COLORS)], "hatch": HATCHES[number % len(HATCHES)], "edgecolor": PAPER}


def _key(kind: str, kinds: list[str], thin: Collection[str]) -> Patch | Line2D:
    if kind in thin:
        return Line2D([], [], color=MUTED, linewidth=0.8, label=kind)
    return Patch(**_look(kind, kinds), linewidth=0.5, label=kind)
