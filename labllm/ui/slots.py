"""A map of memory: what every slot of a cache is good for, row under row, from slot 0 at the top left.

Each kind of slot has its colour and its hatch, and its share in words beside its name. `row` slots make a row: with the
slots of one reservation a row, each sequence is a line and the unused part is what is not filled. It shows one moment;
for a course over time draw the shares (`labllm.ui.shares`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from matplotlib.figure import Figure
from matplotlib.patches import Patch

from labllm.ui.style import (
    COLORS,
    FONT,
    HATCHES,
    INK,
    MUTED,
    PAPER,
    count,
    engineering,
    engineering_ticks,
    name_axes,
    page,
)

Spans = Mapping[str, Sequence[tuple[int, int]]]
HEIGHT, LOWEST, HIGHEST = 0.17, 0.8, 4.2  # inches a row, and of all rows


def chart(spans: Spans, row: int, title: str, subtitle: str = "", *, caption: str = "") -> Figure:
    """`spans` maps each kind to its (start, size) spans; together they tile slots 0 to the last. The last kind is free.

    Raises ValueError where spans overlap or leave a gap, and for a row of no slots.
    """
    total = _total(spans)
    if row < 1:
        raise ValueError(f"a row needs at least one slot, got {row}")
    rows = -(-total // row)
    height = min(HIGHEST, max(LOWEST, HEIGHT * rows))
    fig, ax = page(title, subtitle, caption, height=height, left=0.85, strip=0.3)
    handles = []
    for number, (kind, found) in enumerate(spans.items()):
        free = number == len(spans) - 1
        color = PAPER if free else COLORS[number % len(COLORS)]
        hatch = "" if free else HATCHES[number % len(HATCHES)]
        look = {"facecolor": color, "edgecolor": MUTED if free else PAPER, "hatch": hatch}
        for line, pieces in _by_row(found, row).items():
            ax.broken_barh(pieces, (line - 0.42, 0.84), linewidth=0.5, **look)
        share = engineering(sum(size for _, size in found) / total, "%")
        handles.append(Patch(**look, linewidth=0.5, label=f"{kind} {share}"))
    ax.set_xlim(0, row)
    ax.set_ylim(rows - 0.5, -0.5)
    step = max(1, -(-rows // 8))
    ax.set_yticks(range(0, rows, step), [count(line * row) for line in range(0, rows, step)])
    engineering_ticks(ax.xaxis)
    ax.grid(False)
    name_axes(ax, f"slot within a row of {count(row)}", "first slot of the row")
    legend = ax.legend(
        handles=handles, loc="lower left", bbox_to_anchor=(-0.01, 1.0), ncols=len(handles), frameon=False,
        fontsize=FONT, borderpad=0.1, handlelength=1.6, columnspacing=1.4,
    )  # fmt: skip
    for text in legend.get_texts():
        text.set_color(INK)
    return fig


def conclusion(spans: Spans) -> str:
    """The share of each kind, in one sentence."""
    total = _total(spans)
    parts = [f"{engineering(sum(size for _, size in found) / total, '%')} {kind}" for kind, found in spans.items()]
    return f"Of {total:,} slots: {', '.join(parts)}."


def _by_row(found: Sequence[tuple[int, int]], row: int) -> dict[int, list[tuple[int, int]]]:
    lines: dict[int, list[tuple[int, int]]] = {}
    for start, size in found:
        for line, piece in _cut(start, size, row):
            lines.setdefault(line, []).append(piece)
    return lines


def _cut(start: int, size: int, row: int) -> Iterator[tuple[int, tuple[int, int]]]:
    """A span in pieces that each lie in one row: (row number, (first slot within it, size))."""
    end = start + size
    while start < end:
        stop = min(end, (start // row + 1) * row)
        yield start // row, (start % row, stop - start)
        start = stop


def _total(spans: Spans) -> int:
    end = 0
    for start, size in sorted(span for found in spans.values() for span in found):
        if start != end or size < 1:
            raise ValueError(f"spans must tile the slots: one starts at {start} where the one before it ends at {end}")
        end = start + size
    if not end:
        raise ValueError("a map needs at least one span of slots")
    return end
