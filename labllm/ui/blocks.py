"""A pool of blocks to look at: each block a row of cells in its owners' colours, and under it who names which block.

A cell says which token it holds; a block that several own is striped in all their colours and says so in words. Below
the pool stands a line for each owner: the numbers of its blocks, in order. Nothing here knows what a block is for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from labllm.ui.style import COLORS, FONT, INK, MUTED, PAPER, WIDTH, page

LEFT, CELLS, CELL, HIGH, ROW, LINE = 0.15, 16, 0.39, 0.34, 0.82, 0.3  # inches; CELLS a row of blocks
GAP, NARROW = 0.05, 0.75
HUES = COLORS[:-1]  # black would hide what a cell says


class Block(NamedTuple):
    """What the cells hold ('' for nothing), who owns it, and a word on what has just become of it."""

    cells: tuple[str, ...]
    owners: tuple[str, ...] = ()
    news: str = ""


def chart(
    blocks: Sequence[Block], tables: Mapping[str, Sequence[int]], title: str, subtitle: str = "", *, caption: str = ""
) -> Figure:
    """`tables` maps each owner to the numbers of its blocks. Raises ValueError where blocks differ in size or miss."""
    size = _size(blocks)
    per_row = max(1, CELLS // size)
    rows = -(-len(blocks) // per_row)
    height = ROW * rows + LINE * (max(len(tables), 1) + 0.6)
    fig, ax = page(title, subtitle, caption, height=height, left=LEFT, right=LEFT, bottom=0.1)
    ax.set_axis_off()
    ax.set_xlim(0, WIDTH - 2 * LEFT)
    ax.set_ylim(height, 0)
    colors = {owner: HUES[ord(owner[0]) % len(HUES)] for block in blocks for owner in block.owners}
    for number, block in enumerate(blocks):
        x = (number % per_row) * (WIDTH - 2 * LEFT) / per_row
        _block(ax, x, 0.2 + ROW * (number // per_row), number, block, colors)
    top = ROW * rows + 0.25
    ax.text(0, top, "block tables", fontsize=FONT, color=MUTED, va="center")
    for line, (owner, numbers) in enumerate(tables.items()):
        _table(ax, top + LINE * line, owner, numbers, colors.get(owner, MUTED))
    if not tables:
        ax.text(1.0, top, "none", fontsize=FONT, color=MUTED, va="center")
    return fig


def conclusion(blocks: Sequence[Block], tables: Mapping[str, Sequence[int]]) -> str:
    """How many blocks are held, shared and free, and how many cells of the held ones are empty."""
    size = _size(blocks)
    held = [b for b in blocks if b.owners]
    shared = sum(len(b.owners) > 1 for b in held)
    empty = sum(not cell for b in held for cell in b.cells)
    return (
        f"{len(held)} of {len(blocks)} blocks are held, {shared} of them shared; "
        f"{empty} of their {len(held) * size} slots are empty."
    )


def _block(ax: Axes, x: float, y: float, number: int, block: Block, colors: Mapping[str, str]) -> None:
    size = len(block.cells)
    cell = min(CELL, (WIDTH - 2 * LEFT) / size - GAP / size)
    words = f"{number} {block.news}" if block.news else str(number)
    weight = "bold" if block.news else "normal"
    ax.text(x, y - 0.03, words, fontsize=FONT - 1, color=INK, va="bottom", fontweight=weight)
    for i, text in enumerate(block.cells):
        stripes = len(block.owners)
        for s, owner in enumerate(block.owners):
            at, tall = y + s * HIGH / stripes, HIGH / stripes
            color = _pale(colors[owner], 0.45 if text else 0.12)
            ax.add_patch(Rectangle((x + i * cell, at), cell, tall, facecolor=color, linewidth=0))
        ax.add_patch(Rectangle((x + i * cell, y), cell, HIGH, fill=False, edgecolor=MUTED, linewidth=0.5))
        ax.text(x + (i + 0.5) * cell, y + HIGH / 2, text, fontsize=FONT - 1, color=INK, ha="center", va="center")
    edge = 2.2 if block.news else 1.0
    ax.add_patch(Rectangle((x, y), size * cell, HIGH, fill=False, edgecolor=INK, linewidth=edge, zorder=3))
    between = " " if size * cell < NARROW else " and "
    under = between.join(block.owners) if block.owners else "free"
    ax.text(
        x, y + HIGH + 0.03, under, fontsize=FONT - 1, color=INK if block.owners else MUTED, va="top",
        fontweight="bold" if len(block.owners) > 1 else "normal",
    )  # fmt: skip


def _table(ax: Axes, y: float, owner: str, numbers: Sequence[int], color: str) -> None:
    ax.add_patch(Rectangle((1.0, y - 0.11), 0.3, 0.22, facecolor=_pale(color, 0.45), edgecolor=INK, linewidth=0.8))
    ax.text(1.15, y, owner, fontsize=FONT, color=INK, ha="center", va="center")
    ax.text(1.42, y, "   ".join(map(str, numbers)), fontsize=FONT, color=INK, va="center", family="monospace")


def _pale(color: str, strength: float) -> tuple[float, ...]:
    return tuple(strength * c + (1 - strength) * p for c, p in zip(to_rgb(color), to_rgb(PAPER), strict=True))


def _size(blocks: Sequence[Block]) -> int:
    sizes = {len(block.cells) for block in blocks}
    if len(sizes) != 1 or not min(sizes):
        raise ValueError(f"blocks need cells, and all as many; got blocks of {sorted(sizes)} cells")
    return sizes.pop()
