"""The wait for each token of an answer: a bar for the first, which passes over the whole prompt, then a mark a token.

The axis starts at zero, because bars do. A single late mark (the machine did something else) must not flatten the rest:
marks above the frame are drawn at its edge as arrows and counted in the caption.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, MaxNLocator

from labllm.ui.labels import Label, margin, right_of
from labllm.ui.style import FONT, INK, MUTED, PAPER, engineering, look, name_axes, page, value_axis

Waits = Mapping[str, Sequence[float]]
TITLE = "The wait for each token"
EMPTY = "Nothing is written yet: press Run."


def chart(waits: Waits, prompt: int, *, title: str = TITLE, caption: str = "") -> Figure:
    """`waits` maps a way of generating to the seconds before each token; `prompt` counts the prompt's tokens."""
    _checked(waits)
    subtitle = f"prompt of {prompt:,} tokens; the bar is the wait for the first token, each mark one further token"
    waits = {name: row for name, row in waits.items() if row}
    if not waits:
        fig, ax = page(title, subtitle, caption)
        ax.set_xticks([])
        ax.set_yticks([])
        ax.text(0.5, 0.5, EMPTY, transform=ax.transAxes, ha="center", va="center", fontsize=FONT, color=MUTED)
        return fig
    top = max(_frame(row) for row in waits.values())
    above = sum(second > top for row in waits.values() for second in row)
    if above:
        caption = f"{caption}\n{above} {'wait' if above == 1 else 'waits'} beyond the frame (arrows)".strip()
    names = [Label(len(row), min(row[-1], top), _name(name, row), look(i).color) for i, (name, row) in _ordered(waits)]
    fig, ax = page(title, subtitle, caption, right=margin(page("")[0], names))
    value_axis(ax, [top], "s", log=False)
    longest = max(map(len, waits.values()))
    width = max(0.5, 0.035 * longest)
    for i, (name, row) in _ordered(waits):
        place = -width * (len(waits) - i)
        ax.bar(place, min(row[0], top), width=0.85 * width, color=look(i).color, hatch=look(i).hatch, edgecolor=PAPER)
        _marks(ax, i, row, top, name)
    ax.set_xlim(-width * (len(waits) + 0.8), longest + max(1, 0.02 * longest))
    ticks = [t for t in MaxNLocator(7, integer=True).tick_values(0, longest) if 2 <= t <= longest]
    ax.xaxis.set_major_locator(FixedLocator([-width * (len(waits) + 1) / 2, *ticks]))
    ax.set_xticklabels(["first", *(f"{t:.0f}" for t in ticks)])
    name_axes(ax, "token of the answer", "wait")
    right_of(ax, names)
    return fig


def conclusion(waits: Waits, prompt: int) -> str:
    """The first wait, the typical further one, and whether further ones grow."""
    _checked(waits)
    sentences = [_sentence(name, row, prompt) for name, row in waits.items() if row]
    return " ".join(sentences) or EMPTY


def rate(row: Sequence[float]) -> float:
    """Tokens a second once the first is there: one over the median further wait. ValueError for fewer than two."""
    if len(row) < 2:
        raise ValueError(f"a rate needs a second token at least, got {len(row)}")
    return 1 / statistics.median(row[1:])


def _sentence(name: str, row: Sequence[float], prompt: int) -> str:
    first = f"{name}: the first token comes after {engineering(row[0], 's')} ({prompt:,} tokens of prompt)"
    if len(row) < 12:
        return first + "."
    quarter = len(row) // 4
    early, late = statistics.median(row[1 : 1 + quarter]), statistics.median(row[-quarter:])
    if late > 1.25 * early:
        return f"{first}; further ones grow from {engineering(early, 's')} to {engineering(late, 's')}."
    return f"{first}, each further one after {engineering(statistics.median(row[1:]), 's')}: {rate(row):,.0f} tokens/s."


def _name(name: str, row: Sequence[float]) -> str:
    return name if len(row) < 2 else f"{name}\n{engineering(statistics.median(row[1:]), 's')} a token"


def _frame(row: Sequence[float]) -> float:
    """What must be seen: the first wait, and all others where they are few, else nine in ten of them."""
    further = sorted(row[1:])
    if len(further) < 10:
        return 1.1 * max(row)
    return 1.1 * max(row[0], 1.5 * further[int(0.9 * (len(further) - 1))])


def _marks(ax: Axes, i: int, row: Sequence[float], top: float, name: str) -> None:
    shown = look(i)
    numbers = range(2, len(row) + 1)
    further = row[1:]
    inside = [(n, s) for n, s in zip(numbers, further, strict=True) if s <= top]
    beyond = [n for n, s in zip(numbers, further, strict=True) if s > top]
    ax.plot(
        *(zip(*inside, strict=True) if inside else ((), ())),
        color=shown.color,
        marker=shown.marker,
        markersize=3.5,
        linewidth=0.6,
        linestyle="-",
        label=name,
    )
    ax.plot(beyond, [top] * len(beyond), color=INK, marker="^", markersize=5, linestyle="none", clip_on=False)


def _ordered(waits: Waits) -> list[tuple[int, tuple[str, Sequence[float]]]]:
    return list(enumerate(waits.items()))


def _checked(waits: Waits) -> None:
    if any(second < 0 for row in waits.values() for second in row):
        raise ValueError("a wait is a number of seconds from zero up")
