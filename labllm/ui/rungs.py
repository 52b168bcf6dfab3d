"""A ladder as a ladder: the naive rung at the foot, each higher one with the cost that it removes, and its time.

Of the peers only the fastest is drawn, at the top. Without records it shows the rungs and no time.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

from matplotlib.figure import Figure

from labllm.bench import Ladder, Record, Rung
from labllm.ui.series import say, short_name
from labllm.ui.style import COLORS, FONT, GRID, INK, MUTED, engineering, page, times

STEP, SIDE = 0.62, 0.35  # inches from rung to rung, and from a rail to the end of a rung
LEFT, WIDTH = 0.15, 2.0  # inches: where the ladder stands and how wide it is
COLUMNS = 46
PEER = "what a production library gives on the same inputs"


def chart(ladder: Ladder, records: Iterable[Record] = (), *, title: str = "", caption: str = "") -> Figure:
    """`records`: one workload on one machine, a record a rung; rungs without a time stand without one.

    Raises ValueError where the records are of several workloads or machines.
    """
    found = _timed(ladder, records)
    rungs = _shown(ladder, found)
    subtitle, caption = _subtitle(ladder, found), "\n".join(filter(None, [caption, _provenance(found)]))
    fig, ax = page(
        title or ladder.title, subtitle, caption, height=STEP * len(rungs) + 0.2, left=0, right=0, bottom=0.15
    )
    ax.axis("off")
    box = ax.get_position()
    ax.set_xlim(0, fig.get_figwidth() * box.width)
    ax.set_ylim(0, STEP * len(rungs) + 0.2)
    for rail in (LEFT, LEFT + WIDTH):
        ax.plot([rail, rail], [0, STEP * len(rungs) + 0.1], color=MUTED, linewidth=5, solid_capstyle="round")
    for level, rung in enumerate(rungs):
        y = STEP * level + 0.18
        ax.plot([LEFT, LEFT + WIDTH], [y, y], color=COLORS[0] if not rung.peer else COLORS[4], linewidth=4)
        middle = LEFT + WIDTH / 2
        ax.text(middle, y + 0.07, rung.name, ha="center", va="bottom", fontsize=FONT, color=INK, fontweight="bold")
        if rung.name in found:
            ax.text(LEFT + WIDTH + 0.15, y, _time(rung, rungs, found), va="center", fontsize=FONT, color=INK)
        words = textwrap.fill(_about(rung), COLUMNS)
        ax.text(LEFT + WIDTH + (1.5 if found else 0.2), y, words, va="center", fontsize=FONT, color=INK)
        if level:
            ax.plot([LEFT + WIDTH + 0.05, fig.get_figwidth()], [y - STEP / 2] * 2, color=GRID, linewidth=0.7)
    return fig


def conclusion(ladder: Ladder, records: Iterable[Record] = ()) -> str:
    """What each rung removes, from the foot up, and what the climb gained."""
    found = _timed(ladder, records)
    rungs = _shown(ladder, found)
    text = f"{ladder.title}, from the foot of the ladder: " + "; ".join(f"{r.name} ({_about(r)})" for r in rungs) + "."
    climbed = [found[r.name] for r in rungs if r.name in found]
    if len(climbed) < 2:
        return text
    foot, best = climbed[0], min(climbed, key=lambda r: r.seconds or 0)
    slow, fast = foot.seconds or 0, best.seconds or 1
    return (
        f"{text} On {short_name(foot.host.name)} {foot.rung} takes {engineering(slow, 's')} and {best.rung}, "
        f"the fastest, {engineering(fast, 's')}: {times(slow / fast)} as fast."
    )


def _timed(ladder: Ladder, records: Iterable[Record]) -> dict[str, Record]:
    mine = [r for r in records if r.ladder == ladder.name and r.seconds]
    if len({(r.host.name, tuple(sorted(r.workload.items()))) for r in mine}) > 1:
        raise ValueError("a drawing of rungs takes one workload on one machine: filter the records")
    return {r.rung: r for r in mine}


def _shown(ladder: Ladder, found: dict[str, Record]) -> list[Rung]:
    own, peers = ([r for r in ladder.rungs if r.peer is peer] for peer in (False, True))
    fastest = sorted((r for r in peers if r.name in found), key=lambda r: found[r.name].seconds or 0)
    return [*own, *(fastest or peers)[:1]]


def _about(rung: Rung) -> str:
    return rung.about or (PEER if rung.peer else "")


def _time(rung: Rung, rungs: Sequence[Rung], found: dict[str, Record]) -> str:
    took = found[rung.name].seconds or 0
    first = next((found[r.name].seconds or 0 for r in rungs if r.name in found), took)
    gain = "" if took == first else f"\n{times(first / took)} as fast"
    return engineering(took, "s") + gain


def _subtitle(ladder: Ladder, found: dict[str, Record]) -> str:
    return next((say(r.workload, ladder) for r in found.values()), "")


def _provenance(found: dict[str, Record]) -> str:
    hosts = {(short_name(r.host.name), r.host.name, r.date) for r in found.values()}
    return "; ".join(f"recorded on {host}, {date}" for _, host, date in sorted(hosts))
