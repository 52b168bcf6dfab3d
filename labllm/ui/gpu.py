"""A GPU in one picture: all its multiprocessors, one of them opened, and the memories below, each with its size.

Beside each part stands what a Triton kernel calls it. Sizes are written, not drawn to scale: they differ by a million.
"""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import ConnectionPatch, Rectangle

from labllm.ui.chip import Chip
from labllm.ui.series import short_name
from labllm.ui.style import COLORS, FONT, GRID, INK, MUTED, PAPER, engineering, page

WIDE, HIGH = 6.56, 4.3  # inches of the drawing
CHIP, OPEN = (0.02, 1.95, 2.7, 2.2), (3.25, 1.95, 3.29, 2.2)  # x, y, width, height of the two upper boxes
LOWER = {"L2": 1.1, "memory": 0.1}  # y of the two bars
BAR = 0.55


def chart(chip: Chip) -> Figure:
    """`chip` as a page: the chip with its multiprocessors, one of them opened, L2 and memory below."""
    title = f"{short_name(chip.name)}: {chip.multiprocessors} multiprocessors and the memories they share"
    subtitle = "right: one of them opened; in quotation marks: what a Triton kernel says"
    fig, ax = page(title, subtitle, chip.source, height=HIGH, left=0.12, right=0.12, bottom=0.05)
    ax.axis("off")
    ax.set_xlim(0, WIDE)
    ax.set_ylim(0, HIGH)
    opened = _multiprocessors(ax, chip.multiprocessors)
    _opened(ax, chip)
    for corner in (0.0, OPEN[3]):
        end = OPEN[0], OPEN[1] + corner
        ax.add_artist(ConnectionPatch(opened, end, "data", color=INK, linewidth=0.8, linestyle=":"))
    _bar(ax, "L2", f"L2 cache, {size(chip.l2)}: one for all", COLORS[5])
    rate = f", {engineering(chip.bandwidth, 'B/s')}" if chip.bandwidth else ""
    _bar(ax, "memory", f"memory (HBM or GDDR), {size(chip.memory)}{rate}: tensors live here", COLORS[4])
    for x in (1.35, 4.9):
        _arrow(ax, x, CHIP[1], LOWER["L2"] + BAR)
        _arrow(ax, x, LOWER["L2"], LOWER["memory"] + BAR)
    ax.text(5.0, 1.8, "“tl.load”, “tl.store”", fontsize=FONT, color=INK, va="center")
    return fig


def conclusion(chip: Chip) -> str:
    """How much each kind of memory holds in all."""
    n = chip.multiprocessors
    registers, shared = (size(n * each) for each in (chip.registers, chip.shared))
    return (
        f"The {n} multiprocessors of {_article(short_name(chip.name))} run up to {n * chip.warps * 32:,} threads at a "
        f"time; all their registers hold {registers}, their shared memories {shared}, L2 {size(chip.l2)}, "
        f"and memory {size(chip.memory)}."
    )


def size(value: float) -> str:
    """Bytes in the powers of two that chips are built of: '256 KiB', '33 MiB', '141 GiB'."""
    unit = next((i for i, limit in enumerate((2**20, 2**30), 1) if value < limit), 3)
    return f"{value / 2 ** (10 * unit):.3g} {('KiB', 'MiB', 'GiB')[unit - 1]}"


def _multiprocessors(ax: Axes, count: int) -> tuple[float, float]:
    """A square for each, the last of the first row filled: where its right edge is."""
    x0, y0, width, height = CHIP
    columns = next(c for c in range(1, count + 1) if c * max(1, int(c * height / width)) >= count)
    step = width / columns
    ax.text(x0, y0 + height + 0.06, "the chip: a square is a multiprocessor (SM)", fontsize=FONT, color=INK)
    for i in range(count):
        row, column = divmod(i, columns)
        x, y = x0 + column * step, y0 + height - (row + 1) * step
        face = COLORS[0] if i == columns - 1 else GRID
        ax.add_patch(Rectangle((x, y), 0.8 * step, 0.8 * step, facecolor=face, edgecolor=MUTED, linewidth=0.4))
    return x0 + (columns - 0.2) * step, y0 + height - 0.6 * step


def _opened(ax: Axes, chip: Chip) -> None:
    x, y, width, height = OPEN
    ax.add_patch(Rectangle((x, y), width, height, facecolor=PAPER, edgecolor=COLORS[0], linewidth=1.6))
    ax.text(x, y + height + 0.06, "one multiprocessor: runs “programs”", fontsize=FONT, color=INK)
    rows = (
        (f"up to {chip.warps} warps, each of 32 threads", "a program is a few warps: “num_warps”", COLORS[2], "////"),
        ("arithmetic units; tensor cores", "“a * b”, “tl.exp”; “tl.dot”", COLORS[3], "...."),
        (f"registers, {size(chip.registers)}", "“x = tl.load(...)”: a tile lives here", COLORS[0], ""),
        (f"shared memory, {size(chip.shared)}", "“tl.sum”: warps meet here", COLORS[1], "xxxx"),
    )
    step = (height - 0.1) / len(rows)
    for i, (name, said, color, hatch) in enumerate(rows):
        bottom = y + height - 0.05 - (i + 1) * step
        ax.add_patch(
            Rectangle((x + 0.08, bottom + 0.05), 0.22, step - 0.1, facecolor=PAPER, edgecolor=color, hatch=hatch)
            if hatch
            else Rectangle((x + 0.08, bottom + 0.05), 0.22, step - 0.1, facecolor=color, edgecolor=color)
        )
        ax.text(x + 0.4, bottom + 0.64 * step, name, fontsize=FONT, color=INK, va="center", fontweight="bold")
        ax.text(x + 0.4, bottom + 0.28 * step, said, fontsize=FONT, color=MUTED, va="center")


def _bar(ax: Axes, name: str, words: str, color: str) -> None:
    y = LOWER[name]
    ax.add_patch(Rectangle((0.02, y), WIDE - 0.04, BAR, facecolor=PAPER, edgecolor=color, linewidth=2))
    ax.text(WIDE / 2, y + BAR / 2, words, fontsize=FONT + 1, color=INK, ha="center", va="center")


def _arrow(ax: Axes, x: float, top: float, bottom: float) -> None:
    ax.annotate("", (x, bottom), (x, top), arrowprops={"arrowstyle": "<->", "color": MUTED, "shrinkA": 2, "shrinkB": 2})


def _article(name: str) -> str:
    return f"{'an' if name[:1] in 'AEFHILMNORSX' else 'a'} {name}"
