"""Shares of a whole over a field: how the time (or the bytes) of one step divides among its parts as something grows.

Stacked columns from zero to 100 %, each part with its hatch and its name beside the last column. It hides the
total: put the time itself beside it where the total is the point.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from matplotlib.ticker import FixedLocator, FuncFormatter

from labllm.ui.labels import Label, margin, right_of
from labllm.ui.phrase import amount, parted
from labllm.ui.style import COLORS, FONT, HATCHES, INK, PAPER, count, engineering, name_axes, page, ruler

Parts = Mapping[str, Sequence[float]]
SMALLEST = 0.07  # a slice below this share carries no figure


def chart(
    xs: Sequence[Any], parts: Parts, x: str, title: str, subtitle: str = "", *, of: str = "time", caption: str = ""
) -> Figure:
    """`parts` maps each part to its amounts at `xs`, in any one unit; `x` names the field, `of` the whole.

    Raises ValueError where lengths differ, an amount is negative, or a column is empty.
    """
    shares = _shares(xs, parts)
    names = [Label(0, 0, name) for name in parts]
    fig, ax = page(title, subtitle, caption, right=margin(ruler(), names))
    floor, labels = [0.0] * len(xs), []
    for number, (name, row) in enumerate(shares.items()):
        color = COLORS[number % len(COLORS)]
        ax.bar(
            range(len(xs)),
            row,
            bottom=floor,
            width=0.82,
            color=color,
            edgecolor=PAPER,
            hatch=HATCHES[number % len(HATCHES)],
            linewidth=0.5,
            label=name,
        )
        for i, share in enumerate(row):
            if share >= SMALLEST:
                ax.text(
                    i,
                    floor[i] + share / 2,
                    f"{100 * share:.0f}",
                    ha="center",
                    va="center",
                    fontsize=FONT,
                    color=INK,
                    path_effects=[withStroke(linewidth=3, foreground=PAPER)],
                )
        labels.append(Label(len(xs) - 1 + 0.41, floor[-1] + row[-1] / 2, name, color))
        floor = [a + b for a, b in zip(floor, row, strict=True)]
    ax.set_ylim(0, 1)
    ax.set_xlim(-0.5, len(xs) - 0.5)
    ax.set_xticks(range(len(xs)), [count(v) for v in xs])
    ax.yaxis.set_major_locator(FixedLocator([0, 0.25, 0.5, 0.75, 1]))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{100 * v:.0f} %"))
    ax.grid(False, axis="x")
    name_axes(ax, x, f"share of the {of}")
    right_of(ax, labels)
    return fig


def conclusion(xs: Sequence[Any], parts: Parts, x: str, *, of: str = "time") -> str:
    """The part that grows most from the first column to the last, the one that shrinks most, and where they cross."""
    shares = _shares(xs, parts)
    grows = max(shares, key=lambda n: shares[n][-1] - shares[n][0])
    falls = min(shares, key=lambda n: shares[n][-1] - shares[n][0])
    where = amount(*parted(x), xs[0], xs[-1])
    if grows == falls or shares[grows][-1] - shares[grows][0] < 0.01:
        largest = max(shares, key=lambda n: shares[n][-1])
        share = engineering(shares[largest][-1], "%")
        return f"The largest share of the {of} is that of {largest}, {share}: about the same from {where}."
    ends = {n: f"{engineering(shares[n][0], '%')} to {engineering(shares[n][-1], '%')}" for n in (grows, falls)}
    text = f"From {where}, the share of {grows} in the {of} grows from {ends[grows]}, and that of {falls} falls from"
    text += f" {ends[falls]}"
    passed = next((v for v, a, b in zip(xs, shares[grows], shares[falls], strict=True) if a > b), None)
    return text + (
        f"; the former is the larger from {count(passed)} on." if passed is not None and passed != xs[0] else "."
    )


def _shares(xs: Sequence[Any], parts: Parts) -> dict[str, list[float]]:
    if not xs or not parts or any(len(row) != len(xs) for row in parts.values()):
        lengths = {name: len(row) for name, row in parts.items()}
        raise ValueError(f"each part needs one amount for each of the {len(xs)} values, got {lengths}")
    if any(amount < 0 for row in parts.values() for amount in row):
        raise ValueError("amounts must not be negative")
    totals = [sum(row[i] for row in parts.values()) for i in range(len(xs))]
    if not all(totals):
        raise ValueError(f"the parts at {xs[totals.index(0)]} add up to nothing, so they have no shares")
    return {name: [amount / total for amount, total in zip(row, totals, strict=True)] for name, row in parts.items()}
