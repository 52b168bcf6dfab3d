"""The map of the labs: all that are planned and what each builds on, with those that exist filled in.

The plan's numbers are fixed, so that no link or progress file ever has to change; which labs exist is read from the
notebooks themselves.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

from labllm.home import checkout
from labllm.ui import Picture, show
from labllm.ui.style import COLORS, FONT, INK, MUTED, PAPER, page


@dataclass(frozen=True)
class Planned:
    """A lab's number, its title in two short lines at most, and the labs that come before it."""

    number: str
    title: str
    needs: tuple[str, ...] = ()


PLAN: tuple[Planned, ...] = (
    Planned("00", "start here"),
    Planned("01", "roofline", ("00",)),
    Planned("02", "KV cache", ("01",)),
    Planned("03", "paged\nattention", ("02",)),
    Planned("04", "kernel\nfusion", ("01",)),
    Planned("05", "flash\nattention", ("02", "04")),
    Planned("06", "tensor cores\nby hand", ("04",)),
    Planned("07", "quantization", ("01",)),
    Planned("08", "INT4 kernels", ("04", "07")),
    Planned("09", "KV precision", ("07", "05")),
    Planned("10", "continuous\nbatching", ("03",)),
    Planned("11", "scheduling", ("10",)),
    Planned("12", "speculative\ndecoding", ("10",)),
    Planned("13", "KV beyond\nthe GPU", ("03", "11")),
    Planned("14", "sparse\nattention", ("05",)),
    Planned("15", "tensor\nparallelism", ("02",)),
    Planned("16", "pipeline\nparallelism", ("15",)),
    Planned("17", "mixture\nof experts", ("15",)),
    Planned("18", "serving\nand load", ("11",)),
    Planned("19", "tuning\na deployment", ("18", "16")),
    Planned("20", "capstone:\nthe cost ladder", ("19",)),
)
ROW, BOX, HIGH = 0.72, 1.16, 0.46  # inches: from row to row, a box's width and height


def curriculum(folder: Path | None = None) -> Picture:
    """The map as a picture; `folder` holds the notebooks (default: this checkout's).

    Raises FileNotFoundError where the package was installed without the repository around it.
    """
    here = {path.name[:2] for path in (folder or checkout() / "notebooks").glob("[0-9][0-9]_*.ipynb")}
    return show(chart(here), conclusion(here))


def conclusion(here: set[str]) -> str:
    """Which labs exist and what each that exists builds on."""
    words = [f"{lab.number} {_flat(lab)}{_after(lab)}" for lab in PLAN if lab.number in here]
    later = len(PLAN) - len(words)
    text = f"The labs that are here: {', '.join(words) or 'none'}."
    return f"{text} {later} more are planned." if later else text


def chart(here: set[str]) -> Figure:
    """Labs from the first at the top, each below all that it builds on; `here` are the numbers that exist."""
    rows = max(depth(lab.number) for lab in PLAN) + 1
    fig, ax = page(
        "The map of the labs",
        "each lab stands below what it builds on",
        height=ROW * rows + HIGH / 2,
        bottom=0.1,
        left=0.1,
        right=0.1,
    )
    ax.axis("off")
    width = fig.get_figwidth() - 0.2
    ax.set_xlim(0, width)
    ax.set_ylim(-ROW * rows + HIGH / 2, HIGH)
    places = _places(width - 0.3)
    for lab in PLAN:
        for needed in lab.needs:
            if not any(needed in before(other) for other in lab.needs):
                ax.add_patch(_link(places, needed, lab.number))
    for lab in PLAN:
        x, y = places[lab.number]
        exists = lab.number in here
        ax.add_patch(
            FancyBboxPatch(
                (x - BOX / 2, y - HIGH / 2), BOX, HIGH, boxstyle="round,pad=0,rounding_size=0.06", zorder=2,
                facecolor=COLORS[0] if exists else PAPER, edgecolor=COLORS[0] if exists else MUTED,
                linestyle="-" if exists else "--",
            )
        )  # fmt: skip
        words = f"{lab.number} {lab.title}"
        color = PAPER if exists else INK
        ax.text(x, y, words, ha="center", va="center", fontsize=FONT - 0.5, color=color, zorder=3, linespacing=1.1)
    legend = "filled: it is here\ndashed: planned\n20 comes after all others"
    ax.text(0, -ROW * rows + HIGH / 2 + 0.05, legend, fontsize=FONT, color=MUTED, va="bottom")
    return fig


@cache
def before(number: str) -> frozenset[str]:
    """All labs that come before this one, directly or not. Raises KeyError for an unknown number."""
    needs = _lab(number).needs
    return frozenset(needs).union(*map(before, needs))


@cache
def depth(number: str) -> int:
    """How many labs stand above this one on its longest way from the first. Raises KeyError for an unknown number."""
    return max((depth(needed) + 1 for needed in _lab(number).needs), default=0)


def _places(width: float) -> dict[str, tuple[float, float]]:
    """Centre of each box: row by depth, within a row in the order of what stands above."""
    places: dict[str, tuple[float, float]] = {}
    for row in range(max(depth(lab.number) for lab in PLAN) + 1):
        labs = [lab for lab in PLAN if depth(lab.number) == row]
        labs.sort(key=lambda lab: (sum(places[n][0] for n in lab.needs) / max(1, len(lab.needs)), lab.number))
        for i, lab in enumerate(labs):
            places[lab.number] = (width * (i + 0.5) / len(labs), -ROW * row)
    return places


def _link(places: Mapping[str, tuple[float, float]], above: str, below: str) -> FancyArrowPatch:
    """A line from box to box; around the right side of what stands in between, in a small bow where that is near."""
    (x0, y0), (x1, y1) = places[above], places[below]
    gaps = [abs(x0 + (x1 - x0) * (y0 - y) / (y0 - y1) - x) / BOX for x, y in places.values() if y1 < y < y0]
    hidden, near = (min(gaps, default=math.inf) < limit for limit in (0.6, 0.9))
    ends = ((x0 + BOX / 2, y0), (x1 + BOX / 2, y1)) if hidden else ((x0, y0 - HIGH / 2), (x1, y1 + HIGH / 2))
    bend = f"arc3,rad={-0.45 if hidden else -0.2 if near else 0}"
    return FancyArrowPatch(*ends, arrowstyle="-", connectionstyle=bend, color=MUTED, linewidth=1, zorder=1)


def _lab(number: str) -> Planned:
    return {lab.number: lab for lab in PLAN}[number]


def _flat(lab: Planned) -> str:
    return lab.title.replace("\n", " ")


def _after(lab: Planned) -> str:
    return f" (after {' and '.join(lab.needs)})" if lab.needs else ""
