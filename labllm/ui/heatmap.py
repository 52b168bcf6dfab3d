"""Where one rung beats another: the ratio of their times over two fields, with the line on which they are equal.

Each cell holds the ratio in figures; cells that the first rung wins are hatched, so that the picture does not
depend on colour. A cell without both times says why. The colour scale is symmetric in the logarithm: twice as fast
and half as fast are equally far from white.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from labllm.bench import Ladder, Record
from labllm.ui.older import older
from labllm.ui.series import field, missing_word, say, short_name
from labllm.ui.style import COLORS, FONT, INK, MUTED, PAPER, count, name_axes, page, times

SCALE = LinearSegmentedColormap.from_list("ratio", (COLORS[4], PAPER, COLORS[5]))
CELL, LOSES = 0.42, "////"


@dataclass(frozen=True)
class Grid:
    """The ratio old time / new time at each (x, y), or the reason in words why there is none."""

    xs: tuple[Any, ...]
    ys: tuple[Any, ...]
    ratio: dict[tuple[Any, Any], float]
    reason: dict[tuple[Any, Any], str]
    setting: dict[str, Any]
    dates: tuple[str, ...]
    shared: bool
    older: str

    @classmethod
    def of(cls, ladder: Ladder, records: Iterable[Record], old: str, new: str, x: str, y: str, host: str) -> Grid:
        """Raises ValueError for an unknown field, where nothing was measured, where records mix further settings."""
        field(ladder, x), field(ladder, y)
        mine = [
            r
            for r in records
            if r.ladder == ladder.name and r.host.name == host and r.rung in (old, new) and r.status != "cancelled"
        ]
        if not mine:
            raise ValueError(
                f"there is no record of {old!r} or {new!r} on {host}; measure them first, or choose another machine"
            )
        rest = [{n: v for n, v in r.workload.items() if n not in (x, y)} for r in mine]
        if mixed := sorted({n for one in rest for n in one if one[n] != rest[0].get(n)}):
            raise ValueError(f"the records mix settings of {', '.join(mixed)} besides {x} and {y}; keep one of each")
        by_place: dict[tuple[Any, Any], dict[str, Record]] = {}
        for r in mine:
            by_place.setdefault((r.workload[x], r.workload[y]), {})[r.rung] = r
        ratio, reason = {}, {}
        for place, pair in by_place.items():
            if all(name in pair and pair[name].seconds for name in (old, new)):
                ratio[place] = pair[old].seconds / pair[new].seconds  # type: ignore[operator]
            else:
                untimed = next((r for r in pair.values() if not r.seconds), None)
                reason[place] = f"{untimed.rung}: {missing_word(untimed)}" if untimed else "measured for one only"
        xs, ys = (tuple(sorted({p[i] for p in by_place})) for i in (0, 1))
        dates, shared = tuple(sorted({r.date for r in mine})), any(r.host.shared for r in mine)
        return cls(xs, ys, ratio, reason, rest[0], dates, shared, older(ladder, mine))

    def wins(self, place: tuple[Any, Any]) -> bool | None:
        """True where the new rung is the faster one, None where it is unknown."""
        return None if place not in self.ratio else self.ratio[place] > 1


def chart(ladder: Ladder, records: Iterable[Record], old: str, new: str, x: str, y: str, host: str) -> Figure:
    """How many times as fast `new` is as `old` over fields `x` and `y` on machine `host`."""
    grid = Grid.of(ladder, records, old, new, x, y, host)
    caption = (
        f"each cell: how many times as fast {new} is; hatched: {old} is the faster one; thick line: the crossover\n"
    )
    caption += f"{short_name(host)}, {', '.join(grid.dates)}" + ("; shared GPU" if grid.shared else "") + grid.older
    fig, ax = page(
        f"{new} against {old}: {ladder.title}", say(grid.setting, ladder), caption, height=max(1.2, CELL * len(grid.ys))
    )
    reach = max(0.2, *(abs(math.log2(v)) for v in grid.ratio.values()), 0.2)
    norm = Normalize(-reach, reach)
    for i, vx in enumerate(grid.xs):
        for j, vy in enumerate(grid.ys):
            _cell(ax, grid, (vx, vy), i, j, norm)
    _crossover(ax, grid)
    ax.grid(False)
    ax.set_xlim(-0.5, len(grid.xs) - 0.5)
    ax.set_ylim(-0.5, len(grid.ys) - 0.5)
    ax.set_xticks(range(len(grid.xs)), [count(v) for v in grid.xs])
    ax.set_yticks(range(len(grid.ys)), [count(v) for v in grid.ys])
    name_axes(ax, field(ladder, x).title, field(ladder, y).title)
    return fig


def conclusion(ladder: Ladder, records: Iterable[Record], old: str, new: str, x: str, y: str, host: str) -> str:
    """Where the new rung wins, by how much at most, and where it loses."""
    grid = Grid.of(ladder, records, old, new, x, y, host)
    if not grid.ratio:
        return f"{new} and {old} were never timed at the same place on {short_name(host)}."
    best, worst = max(grid.ratio, key=grid.ratio.__getitem__), min(grid.ratio, key=grid.ratio.__getitem__)
    won = sum(bool(grid.wins(p)) for p in grid.ratio)
    peak = f"{times(grid.ratio[best])} as fast at {say(dict(zip((x, y), best, strict=True)), ladder)}"
    if won == len(grid.ratio):
        return f"{new} is faster than {old} everywhere on {short_name(host)}: up to {peak}."
    low = f"{times(1 / grid.ratio[worst])} as fast at {say(dict(zip((x, y), worst, strict=True)), ladder)}"
    if not won:
        return f"{new} is nowhere faster than {old} on {short_name(host)}: {old} is up to {low}."
    places = f"{won} of {len(grid.ratio)} places on {short_name(host)}"
    return f"{new} is faster in {places}, up to {peak}; {old} is up to {low}."


def _cell(ax: Axes, grid: Grid, place: tuple[Any, Any], i: int, j: int, norm: Normalize) -> None:
    ratio = grid.ratio.get(place)
    color = "#EEEEEE" if ratio is None else SCALE(norm(math.log2(ratio)))
    hatch = LOSES if grid.wins(place) is False else ""
    ax.add_patch(Rectangle((i - 0.5, j - 0.5), 1, 1, facecolor=color, edgecolor="#BBBBBB", hatch=hatch, linewidth=0.8))
    text = times(ratio) if ratio is not None else _broken(grid.reason.get(place, "not measured"))
    box = {"facecolor": PAPER, "edgecolor": "none", "pad": 1.5, "alpha": 0.85} if hatch else None
    ax.text(
        i,
        j,
        text,
        ha="center",
        va="center",
        fontsize=FONT if ratio is not None else FONT - 1.5,
        color=INK if ratio else MUTED,
        bbox=box,
    )


def _broken(reason: str) -> str:
    return (
        reason.split(": ")[-1]
        .replace("out of ", "out of\n")
        .replace("cannot run ", "cannot run\n")
        .replace("not ", "not\n", 1)
    )


def _crossover(ax: Axes, grid: Grid) -> None:
    for i, vx in enumerate(grid.xs):
        for j, vy in enumerate(grid.ys):
            mine = grid.wins((vx, vy))
            right = grid.wins((grid.xs[i + 1], vy)) if i + 1 < len(grid.xs) else None
            above = grid.wins((vx, grid.ys[j + 1])) if j + 1 < len(grid.ys) else None
            if None not in (mine, right) and mine != right:
                ax.plot([i + 0.5, i + 0.5], [j - 0.5, j + 0.5], color=INK, linewidth=3, solid_capstyle="round")
            if None not in (mine, above) and mine != above:
                ax.plot([i - 0.5, i + 0.5], [j + 0.5, j + 0.5], color=INK, linewidth=3, solid_capstyle="round")
