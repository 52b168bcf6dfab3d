"""Attention masks as pictures: a row a query, a column a key, a filled square where the query may see the key.

Several masks of one question stand side by side, the right one first; where another differs it is crossed, so that a
mistake is seen and counted. Keys that were cached before this step are named on the axis. For masks of up to a few
dozen keys: beyond that squares turn into a texture.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from labllm.ui.style import COLORS, FONT, GRID, INK, PAPER, WIDTH, dress, page

Masks = Mapping[str, Any]
SEEN, LOST, LEAKED = COLORS[0], COLORS[1], COLORS[4]
LARGEST = 0.34  # inches of a square's side
EDGE, GAP = 0.75, 0.75


def chart(masks: Masks, title: str = "Which keys each query may see", subtitle: str = "", caption: str = "") -> Figure:
    """`masks` maps names to bool masks [Tq, Tk], True where seen; the first one is right and the others are held to it.

    Raises ValueError where there is no mask, one is not a matrix, or shapes differ.
    """
    tables = _tables(masks)
    queries, keys = next(iter(tables.values())).shape
    side = min(LARGEST, (WIDTH - EDGE - 0.3 - GAP * (len(tables) - 1)) / (len(tables) * keys))
    fig, first = page(title, subtitle, caption, height=side * queries, left=EDGE, right=0.2, strip=0.42, bottom=0.55)
    box, truth = first.get_position(), next(iter(tables.values()))
    for number, (name, mask) in enumerate(tables.items()):
        left = (EDGE + number * (side * keys + GAP)) / WIDTH
        where = (left, box.y0, side * keys / WIDTH, box.height)
        ax = first if not number else fig.add_axes(where)
        ax.set_position(where)
        dress(ax)
        _squares(ax, mask, truth)
        ax.set_title(name, fontsize=FONT, color=INK, loc="left", pad=6)
        _ticks(ax, queries, keys, outer=not number)
    return fig


def conclusion(masks: Masks) -> str:
    """How many pairs the first mask lets through, and what each other one hides or shows wrongly."""
    tables = _tables(masks)
    (right, truth), *others = tables.items()
    queries, keys = truth.shape
    seen = f"{int(truth.sum())} of {truth.numel()} pairs"
    text = f"With {queries} queries and {keys} keys the {right} mask lets {seen} through"
    for name, mask in others:
        lost, leaked = int((truth & ~mask).sum()), int((mask & ~truth).sum())
        parts = [f"hides {lost} that should be seen"] * bool(lost) + [f"shows {leaked} of the future"] * bool(leaked)
        text += f"; the {name} mask {' and '.join(parts) or 'is the same'}"
    return text + "."


def _tables(masks: Masks) -> dict[str, torch.Tensor]:
    tables = {name: torch.as_tensor(mask).bool().cpu() for name, mask in masks.items()}
    shapes = {tuple(mask.shape) for mask in tables.values()}
    if len(shapes) != 1 or len(next(iter(shapes))) != 2:
        raise ValueError(f"masks must be matrices [Tq, Tk] of one shape, at least one of them; got {sorted(shapes)}")
    return tables


def _squares(ax: Axes, mask: torch.Tensor, truth: torch.Tensor) -> None:
    for (i, j), seen in zip(_places(mask), mask.flatten().tolist(), strict=True):
        right = bool(truth[i, j])
        color = (SEEN if right else LEAKED) if seen else PAPER
        hatch = "" if seen == right else "xxxx"
        edge = GRID if seen == right else (INK if seen else LOST)
        ax.add_patch(Rectangle((j - 0.5, i - 0.5), 1, 1, facecolor=color, edgecolor=edge, hatch=hatch, linewidth=0.8))


def _places(mask: torch.Tensor) -> list[tuple[int, int]]:
    return [(i, j) for i in range(mask.shape[0]) for j in range(mask.shape[1])]


def _ticks(ax: Axes, queries: int, keys: int, outer: bool) -> None:
    cached = keys - queries
    ax.set_xlim(-0.5, keys - 0.5)
    ax.set_ylim(queries - 0.5, -0.5)
    ax.grid(False)
    step = -(-keys // 16)
    ax.set_xticks(range(0, keys, step), [str(j) for j in range(0, keys, step)])
    ax.set_yticks(range(queries), [f"query {i}" for i in range(queries)] if outer else [])
    ax.tick_params(length=0)
    for spine in ax.spines.values():
        spine.set_visible(False)
    if cached > 0:
        ax.axvline(cached - 0.5, color=INK, linewidth=2)
        ax.set_xlabel(f"keys: {cached} cached | {queries} new", fontsize=FONT, color=INK)
    else:
        ax.set_xlabel("keys", fontsize=FONT, color=INK)
