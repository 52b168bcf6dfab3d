"""A layer on several ranks as a picture: what each computes, left to right, and where all have to wait for all.

A box that every rank draws in its own colour is work that is split; a grey box is done by every rank alike; an upright
bar across the ranks is a collective. Widths say nothing about time. Two ways: an all-reduce behind each block, and
sequence parallelism, where reduce-scatter and all-gather take its place and the grey boxes vanish
(Korthikanti et al. 2022, arXiv:2205.05198, section 4.2.2).
"""

from __future__ import annotations

from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from labllm.ui import Picture, show
from labllm.ui.style import COLORS, FONT, HATCHES, INK, MUTED, PAPER, page

SAME, SPLIT, ALL = "alike", "split", "collective"
GREY = "#E6E6E6"
LANE, HIGH, BELOW = 0.46, 0.36, 0.45  # inches from rank to rank, of a box, and under the last rank
CAPTION = "Coloured: split. Grey: done alike by every rank. Black: all wait for all. Not to scale."


@dataclass(frozen=True)
class Piece:
    """What is done, how it is shared, and how wide it is drawn."""

    name: str
    kind: str
    wide: float = 1.0


ALL_REDUCE = (
    Piece("norm", SAME, 0.8), Piece("q, k, v", SPLIT), Piece("attention", SPLIT, 1.3), Piece("o", SPLIT, 0.6),
    Piece("all-reduce", ALL), Piece("add, norm", SAME, 1.3), Piece("gate, up", SPLIT, 1.3), Piece("down", SPLIT, 0.9),
    Piece("all-reduce", ALL), Piece("add", SAME, 0.7),
)  # fmt: skip
SEQUENCE = (
    Piece("norm", SPLIT, 0.8), Piece("all-gather", ALL), Piece("q, k, v", SPLIT), Piece("attention", SPLIT, 1.3),
    Piece("o", SPLIT, 0.6), Piece("reduce-scatter", ALL), Piece("add, norm", SPLIT, 1.3), Piece("all-gather", ALL),
    Piece("gate, up", SPLIT, 1.3), Piece("down", SPLIT, 0.9), Piece("reduce-scatter", ALL), Piece("add", SPLIT, 0.7),
)  # fmt: skip
WAYS = {"all-reduce": ALL_REDUCE, "sequence parallel": SEQUENCE}


def layer(way: str = "all-reduce", ranks: int = 2) -> Picture:
    """The picture of one layer with its sentence. Raises ValueError for a way that is not in WAYS."""
    if way not in WAYS:
        raise ValueError(f"a layer is drawn as {' or '.join(WAYS)}, not {way!r}")
    return show(chart(WAYS[way], ranks, way), conclusion(WAYS[way], ranks))


def conclusion(pieces: tuple[Piece, ...], ranks: int) -> str:
    """How often all wait for all, and what every rank does alike."""
    waits = [piece.name for piece in pieces if piece.kind == ALL]
    alike = [piece.name for piece in pieces if piece.kind == SAME]
    counted = ", ".join(f"{waits.count(name)} x {name}" for name in dict.fromkeys(waits))
    done = f"each of the {ranks} ranks does {'; '.join(alike)} for all tokens" if alike else "nothing is done twice"
    return f"All wait for all {len(waits)} times a layer ({counted}), and {done}."


def chart(pieces: tuple[Piece, ...], ranks: int, way: str) -> Figure:
    """The drawing."""
    title, height = f"One layer on {ranks} ranks: {way}", LANE * ranks + BELOW
    fig, ax = page(title, caption=CAPTION, height=height, left=0.75, right=0.15, bottom=0.0)
    x = 0.0
    for piece in pieces:
        x = (_collective if piece.kind == ALL else _boxes)(ax, piece, x, ranks)
    ax.set_xlim(0, x)
    ax.set_ylim(height, 0)
    ax.set_yticks([LANE * rank + HIGH / 2 + 0.05 for rank in range(ranks)], [f"rank {rank}" for rank in range(ranks)])
    ax.set_xticks([])
    ax.grid(False)
    ax.tick_params(length=0)
    for spine in ax.spines.values():
        spine.set_visible(False)
    return fig


def _boxes(ax: Axes, piece: Piece, x: float, ranks: int) -> float:
    for rank in range(ranks):
        split = piece.kind == SPLIT
        color = COLORS[rank % len(COLORS)] if split else GREY
        y = LANE * rank + 0.05
        box, hatch = ((x + 0.04, y), piece.wide - 0.08, HIGH), HATCHES[rank % len(HATCHES)] if split else ""
        ax.add_patch(
            Rectangle(*box, facecolor=color, edgecolor=PAPER, linewidth=0, hatch=hatch, alpha=0.55 if split else 1)
        )
        ax.add_patch(Rectangle(*box, fill=False, edgecolor=MUTED, linewidth=0.8))
        words = ax.text(
            x + piece.wide / 2, y + HIGH / 2, piece.name, fontsize=FONT, color=INK, ha="center", va="center"
        )
        words.set_bbox({"facecolor": PAPER if split else GREY, "edgecolor": "none", "pad": 1.2})
    return x + piece.wide


def _collective(ax: Axes, piece: Piece, x: float, ranks: int) -> float:
    low = ranks * LANE + 0.02
    ax.add_patch(Rectangle((x + 0.1, 0), 0.12, low, facecolor=INK, linewidth=0))
    ax.text(x + 0.16, low + 0.06, piece.name.replace("-", "-\n"), fontsize=FONT, color=INK, ha="center", va="top")
    return x + 0.32
