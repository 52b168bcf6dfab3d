"""Bars of bytes: what memory holds, by part, for each case; or what each rung needs at its peak.

Bars lie, start at zero and are named in words at their end; each part has its hatch. `room` marks what a device
offers, so that a bar that does not fit is seen and said.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke

from labllm.bench import Ladder, Record
from labllm.ui.series import missing_word, short_name
from labllm.ui.style import COLORS, FONT, HATCHES, INK, PAPER, engineering, name_axes, page, value_axis

Bars = Mapping[str, Mapping[str, float]]
BAR = 0.34  # inches from bar to bar


def chart(
    bars: Bars, title: str = "Memory", subtitle: str = "", *, room: Mapping[str, float] | None = None, caption: str = ""
) -> Figure:
    """`bars` maps each case to its parts in bytes; `room` maps a device's name to the bytes that it has.

    Raises ValueError where there is no bar or a part is negative.
    """
    _check(bars)
    parts = list(dict.fromkeys(part for bar in bars.values() for part in bar))
    shown = max(sum(bar.values()) for bar in bars.values())
    room = {name: size for name, size in (room or {}).items() if size <= 4 * shown}
    height = BAR * len(bars) + 0.15
    fig, ax = page(
        title,
        subtitle,
        caption,
        height=height,
        left=0.2 + 0.085 * max(map(len, bars)),
        right=1.0,
        strip=0.28 * (len(parts) > 1) + 0.2 * bool(room),
    )
    value_axis(ax, [shown, *room.values()], "B", False, axis="x")
    for row, bar in enumerate(bars.values()):
        start = 0.0
        for part in parts:
            size, number = bar.get(part, 0.0), parts.index(part)
            ax.barh(
                row,
                size,
                left=start,
                height=0.62,
                color=COLORS[number % len(COLORS)],
                edgecolor=PAPER,
                hatch=HATCHES[number % len(HATCHES)],
                linewidth=0.5,
                label=part if part not in ax.get_legend_handles_labels()[1] else None,
            )
            start += size
        ax.annotate(
            engineering(start, "B"),
            (start, row),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            fontsize=FONT,
            color=INK,
            annotation_clip=False,
            zorder=4,
            path_effects=[withStroke(linewidth=3, foreground=PAPER)],
        )
    for name, size in room.items():
        ax.axvline(size, color=INK, linewidth=1.2, linestyle="--")
        ax.annotate(
            name,
            (size, 1),
            xycoords=ax.get_xaxis_transform(),
            xytext=(0, 3),
            textcoords="offset points",
            fontsize=FONT,
            color=INK,
            ha="center",
        )
    ax.set_yticks(range(len(bars)), list(bars))
    ax.set_ylim(len(bars) - 0.5, -0.5)
    ax.grid(False, axis="y")
    name_axes(ax, "bytes")
    if len(parts) > 1:
        ax.legend(
            loc="lower left",
            bbox_to_anchor=(-0.01, 1.0 + (0.2 / height if room else 0)),
            ncols=len(parts),
            frameon=False,
            fontsize=FONT,
            borderpad=0.1,
            handlelength=1.6,
        )
    return fig


def conclusion(bars: Bars, *, room: Mapping[str, float] | None = None) -> str:
    """The largest bar, its largest part, and what does not fit where."""
    _check(bars)
    totals = {case: sum(bar.values()) for case, bar in bars.items()}
    largest = max(totals, key=totals.__getitem__)
    parts = bars[largest]
    part = max(parts, key=parts.__getitem__)
    text = f"{largest} needs {engineering(totals[largest], 'B')}"
    if len(parts) > 1 and totals[largest]:
        text += f", {engineering(parts[part] / totals[largest], '%')} of it {part}"
    if len(totals) > 1:
        smallest = min(totals, key=totals.__getitem__)
        text += f"; {smallest} needs {engineering(totals[smallest], 'B')}"
    for device, size in (room or {}).items():
        beyond = [case for case, total in totals.items() if total > size]
        text += f"; {'not' if beyond else 'all'} within {device} ({engineering(size, 'B')})" + (
            f": {', '.join(beyond)}" if beyond else ""
        )
    return text + "."


def of_records(ladder: Ladder, records: Iterable[Record]) -> Bars:
    """Peak bytes of each rung, in the ladder's order, at one workload; a rung without them says why in its name."""
    bars: dict[str, dict[str, float]] = {}
    records = list(records)
    order = {rung.name: number for number, rung in enumerate(ladder.rungs)}
    many = len({r.host.name for r in records}) > 1
    for r in sorted(records, key=lambda r: (r.host.name, order.get(r.rung, len(order)))):
        name = f"{r.rung} · {short_name(r.host.name)}" if many else r.rung
        if r.status == "ok" and r.peak_bytes is not None:
            bars[name] = {"peak": r.peak_bytes}
        else:
            bars[f"{name} ({missing_word(r)})"] = {"peak": 0.0}
    return bars


def _check(bars: Bars) -> None:
    if not bars:
        raise ValueError("a memory chart needs at least one bar: {'case': {'part': bytes}}")
    for case, bar in bars.items():
        for part, size in bar.items():
            if size < 0:
                raise ValueError(f"bytes cannot be negative, got {size} for {part} of {case}")
