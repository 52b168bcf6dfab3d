"""The online softmax as a picture: scores with the running maximum above, the running sum of each tile below.

A Panel moves along the row tile by tile. Nothing is measured; the same row gives the same picture everywhere.
"""

from __future__ import annotations

import math

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from labllm.attention.online import Step, walk
from labllm.ui import Panel, View, choice, slider
from labllm.ui.style import COLORS, FONT, GRID, HATCHES, INK, MUTED, PAPER, dress, name_axes, page

ROWS: dict[str, tuple[float, ...]] = {
    "mixed": (0.5, 1.5, -1.0, 0.2, 1.2, 2.6, 0.1, -0.6, 1.9, 0.4, 3.4, -0.3, 0.9, 2.2, -1.2, 1.1),
    "rising": tuple(round(-1.2 + 0.3 * i, 1) for i in range(16)),
    "falling": tuple(round(3.3 - 0.3 * i, 1) for i in range(16)),
    "one late peak": (1.0, 0.6, 1.3, 0.8, 1.1, 0.7, 1.2, 0.9, 1.0, 0.5, 1.3, 0.8, 1.1, 6.0, 0.9, 1.0),
}
READ, NOW, UPPER, LOWER, GAP = COLORS[0], COLORS[1], 1.7, 1.35, 0.62


def online() -> Panel:
    """A Panel over rows of 16 scores, the size of a tile, and the tile that has just been read."""
    controls = {
        "row": choice(*ROWS),
        "tile": slider(2, 4, 8, value=4),
        "step": slider(*range(1, 9), value=2, label="tiles read"),
    }
    return Panel.of(look, name="online softmax", **controls)


def look(row: str, tile: int, step: int) -> View:
    """The walk along `row` after `step` tiles (or after the last one), with its sentence and its numbers."""
    scores = ROWS[row]
    steps = walk(scores, tile)
    done = steps[:step]
    return View(chart(scores, done, row), conclusion(len(scores), done), _table(done))


def chart(scores: tuple[float, ...], done: list[Step], row: str) -> Figure:
    """Above: scores, the newest tile hatched, and the running maximum. Below: what each tile kept and added."""
    read = f"{done[-1].last} of {len(scores)} scores are read"
    fig, lower = page(f"The online softmax along a row: {row}", read, height=UPPER + GAP + LOWER, left=0.85, right=1.35)
    box, inch = lower.get_position(), 1 / fig.get_figheight()
    lower.set_position((box.x0, box.y0, box.width, LOWER * inch))
    upper = fig.add_axes((box.x0, box.y0 + (LOWER + GAP) * inch, box.width, UPPER * inch))
    dress(upper)
    _scores(upper, scores, done)
    _sums(lower, done)
    for ax in (upper, lower):
        ax.set_xlim(-0.6, len(scores) - 0.4)
        ax.set_xticks(range(len(scores)))
        ax.grid(False, axis="x")
    name_axes(upper, "", "score s")
    name_axes(lower, "key", "sum l")
    return fig


def conclusion(total: int, done: list[Step]) -> str:
    """What the newest tile did to maximum and sum, in one sentence."""
    now = done[-1]
    if len(done) == 1:
        moved = f"the first tile sets the maximum to {now.m:g} and the sum to {now.l:.3f}"
    elif now.alpha < 1:
        moved = (
            f"the newest tile raises the maximum from {done[-2].m:g} to {now.m:g}, so the old sum {done[-2].l:.3f} is "
            f"multiplied by exp({done[-2].m:g} - {now.m:g}) = {now.alpha:.3f}; {now.added:.3f} is added: {now.l:.3f}"
        )
    else:
        moved = f"the maximum stays {now.m:g}, so nothing is rescaled, and {now.added:.3f} is added: {now.l:.3f}"
    end = f"; the walk is over, and log l + m = {math.log(now.l) + now.m:.3f}" if now.last == total else ""
    return f"After {now.last} of {total} scores {moved}{end}."


def _scores(ax: Axes, scores: tuple[float, ...], done: list[Step]) -> None:
    now = done[-1]
    for key, score in enumerate(scores):
        color, hatch = (PAPER, "") if key >= now.last else (NOW, HATCHES[1]) if key >= now.first else (READ, "")
        edge = MUTED if key >= now.last else PAPER
        ax.bar(key, score, width=0.8, facecolor=color, edgecolor=edge, hatch=hatch, linewidth=0.8)
    for step, after in zip(done, [*done[1:], None], strict=True):
        ax.plot((step.first - 0.5, step.last - 0.5), (step.m, step.m), color=INK, linewidth=2)
        if after:
            ax.plot((step.last - 0.5,) * 2, (step.m, after.m), color=INK, linewidth=1, linestyle=":")
    ax.axhline(0, color=MUTED, linewidth=0.8)
    ax.set_ylim(min(0.0, *scores) - 0.3, max(scores) + 0.9)
    _name(ax, now.m, f"m = {now.m:g}")


def _sums(ax: Axes, done: list[Step]) -> None:
    top = max(step.l for step in done)
    for step in done:
        middle, width = (step.first + step.last - 1) / 2, 0.8 * (step.last - step.first)
        ax.bar(middle, step.kept, width=width, facecolor=READ, edgecolor=PAPER, linewidth=0.5)
        ax.bar(
            middle, step.added, bottom=step.kept, width=width, facecolor=NOW, edgecolor=PAPER, hatch=HATCHES[1],
            linewidth=0.5,
        )  # fmt: skip
        words = "start" if step is done[0] else f"x {step.alpha:.2f}"
        ax.annotate(
            words, (middle, step.l), xytext=(0, 3), textcoords="offset points", ha="center", fontsize=FONT, color=INK
        )
    ax.set_ylim(0, 1.3 * top)
    ax.axhline(0, color=GRID, linewidth=0.8)
    _name(ax, done[-1].l, f"l = {done[-1].l:.3f}")
    key = "filled: kept\nhatched: added\nx: old sum times"
    ax.text(1.02, 0.02, key, transform=ax.transAxes, fontsize=FONT, color=MUTED, va="bottom", linespacing=1.3)


def _name(ax: Axes, level: float, words: str) -> None:
    low, high = ax.get_ylim()
    place = max(0.42, (level - low) / (high - low)) if "l =" in words else (level - low) / (high - low)
    ax.text(1.02, place, words, transform=ax.transAxes, fontsize=FONT, color=INK, va="center", fontweight="bold")


def _table(done: list[Step]) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {
                "keys": f"{s.first} to {s.last - 1}", "largest of the tile": s.peak, "running max m": s.m,
                "old sum times": s.alpha, "kept": s.kept, "added": s.added, "running sum l": s.l,
            }
            for s in done
        ]
    )  # fmt: skip
