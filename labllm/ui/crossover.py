"""Every rung against one baseline over a field: where each way begins or ends to pay.

A row is a rung, a column a value of the field, a cell the baseline's time over the rung's. Cells where the rung loses
are hatched, so that the picture does not depend on colour; the caption says why a cell has no time. The best rung of
each column has a thick frame.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from labllm.bench import Ladder, Record
from labllm.ui.heatmap import CELL, LOSES, SCALE
from labllm.ui.older import older
from labllm.ui.series import field, missing_word, say, short_name
from labllm.ui.style import FONT, INK, LESS, MUTED, PAPER, count, name_axes, page, times


@dataclass(frozen=True)
class Standing:
    """ratio[rung, value]: the baseline's time over the rung's; reason where the rung was not timed there."""

    rungs: tuple[str, ...]
    values: tuple[Any, ...]
    ratio: dict[tuple[str, Any], float]
    reason: dict[tuple[str, Any], str]
    setting: dict[str, Any]
    host: str
    dates: tuple[str, ...]
    older: str

    @classmethod
    def of(
        cls, ladder: Ladder, records: Iterable[Record], baseline: str, x: str, rungs: Sequence[str] | None
    ) -> Standing:
        """Raises ValueError for an unknown field, records of several machines or settings, or none of the baseline."""
        field(ladder, x)
        names = [r.name for r in ladder.rungs if rungs is None or r.name in rungs or r.name == baseline]
        mine = [r for r in records if r.ladder == ladder.name and r.rung in names and r.status != "cancelled"]
        settings = [{n: v for n, v in r.workload.items() if n != x} for r in mine]
        if any(one != settings[0] for one in settings) or len({r.host.name for r in mine}) > 1:
            raise ValueError(f"the records mix machines, or settings besides {x}; keep one of each")
        base = {r.workload[x]: r.seconds for r in mine if r.rung == baseline and r.seconds}
        if not base:
            raise ValueError(f"there is no timed record of {baseline!r} to compare with; measure it first")
        ratio = {
            (r.rung, r.workload[x]): base[r.workload[x]] / r.seconds
            for r in mine
            if r.seconds and r.workload[x] in base
        }
        ran = [name for name in names if any(rung == name for rung, _ in ratio)]
        reason = {(r.rung, r.workload[x]): missing_word(r, ran=True) for r in mine if not r.seconds and r.rung in ran}
        dates = tuple(sorted({r.date for r in mine}))
        return cls(
            tuple(ran), tuple(sorted(base)), ratio, reason, settings[0], mine[0].host.name, dates, older(ladder, mine)
        )

    def best(self, value: Any) -> str:
        """The fastest rung in a column."""
        return max((r for r in self.rungs if (r, value) in self.ratio), key=lambda r: self.ratio[r, value])


def chart(
    ladder: Ladder, records: Iterable[Record], baseline: str, x: str, rungs: Sequence[str] | None = None
) -> Figure:
    """How many times as fast as `baseline` each of `rungs` (default: all that ran) is, over field `x`."""
    s = Standing.of(ladder, records, baseline, x, rungs)
    caption = f"cells: {baseline}'s time over the rung's; hatched: it loses; framed: fastest of its column"
    caption += "".join(f"; -: {word}" for word in sorted(set(s.reason.values()))) + "\n"
    caption += f"{short_name(s.host)}, {', '.join(s.dates)}{s.older}"
    left = 0.25 + 0.085 * max(len(rung) for rung in s.rungs)
    fig, ax = page(
        f"{ladder.title}, against {baseline}", say(s.setting, ladder), caption, height=CELL * len(s.rungs), left=left
    )
    reach = max(0.2, *(abs(math.log2(v)) for v in s.ratio.values()), 0.2)
    norm = Normalize(-reach, reach)
    for i, value in enumerate(s.values):
        for j, rung in enumerate(reversed(s.rungs)):
            ratio = s.ratio.get((rung, value))
            loses = ratio is not None and ratio < LESS
            color = "#EEEEEE" if ratio is None else SCALE(norm(math.log2(ratio)))
            ax.add_patch(
                Rectangle((i - 0.5, j - 0.5), 1, 1, facecolor=color, edgecolor="#BBBBBB", hatch=LOSES if loses else "")
            )
            box = {"facecolor": PAPER, "edgecolor": "none", "pad": 1.0, "alpha": 0.85} if loses else None
            text, ink = (times(ratio), INK) if ratio is not None else ("-", MUTED)
            ax.text(i, j, text, ha="center", va="center", fontsize=FONT - 1, color=ink, bbox=box)
        best = len(s.rungs) - 1 - s.rungs.index(s.best(value))
        ax.add_patch(Rectangle((i - 0.48, best - 0.46), 0.96, 0.92, fill=False, edgecolor=INK, linewidth=2, zorder=3))
    ax.grid(False)
    ax.set_xlim(-0.5, len(s.values) - 0.5)
    ax.set_ylim(-0.5, len(s.rungs) - 0.5)
    ax.set_xticks(range(len(s.values)), [count(v) for v in s.values])
    ax.set_yticks(range(len(s.rungs)), list(reversed(s.rungs)))
    name_axes(ax, field(ladder, x).title, "")
    return fig


def conclusion(
    ladder: Ladder, records: Iterable[Record], baseline: str, x: str, rungs: Sequence[str] | None = None
) -> str:
    """The fastest way at both ends, and where each other rung loses to the baseline."""
    s = Standing.of(ladder, records, baseline, x, rungs)
    first, last = s.values[0], s.values[-1]
    words = [_lead(s, first, ladder, x)] + ([_lead(s, last, ladder, x)] if last != first else [])
    losing = []
    for rung in s.rungs:
        timed = [v for v in s.values if (rung, v) in s.ratio]
        lost = [v for v in timed if s.ratio[rung, v] < LESS]
        if rung != baseline and lost:
            losing.append(f"{rung} {_where(lost, timed)}")
    behind = f" Slower than {baseline}: {'; '.join(losing)}." if losing else ""
    return f"On {short_name(s.host)} {'; '.join(words)}.{behind}"


def _where(lost: Sequence[Any], timed: Sequence[Any]) -> str:
    """'always', 'from 64 on' where it loses up to the last value timed, else each value."""
    if len(lost) == len(timed):
        return "always"
    if lost == timed[-len(lost) :]:
        return f"from {count(lost[0])} on"
    *some, last = map(count, lost)
    return f"at {', '.join(some)} and {last}" if some else f"at {last}"


def _lead(s: Standing, value: Any, ladder: Ladder, x: str) -> str:
    best = s.best(value)
    return f"{best} is the fastest at {field(ladder, x).label} {count(value)} ({times(s.ratio[best, value])})"
