"""One look for every chart: paper, ink, palette, marks, number formats, and a page with fixed margins.

Colour never tells alone: each rung also has its own marker and hatch, and its name stands beside its line. The
paper is white and opaque, so a figure reads the same in a light and in a dark notebook. Everything is set on the
artists and nothing in matplotlib's global settings, so a figure may be drawn on any thread and twice gives the same
bytes.

Palette: Okabe and Ito, "Color universal design", 2008, without its yellow, which is too faint on white.
"""

from __future__ import annotations

import io
import math
import textwrap
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator

PAPER, INK, MUTED, GRID = "#FFFFFF", "#222222", "#555555", "#DDDDDD"
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
DARKER = ("#004468", "#8A3D00", "#00614A", "#82476A", "#8F6200", "#2C6A91", "#777777")  # for a ladder's eighth to last
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*", "<", ">")
HATCHES = ("", "////", "....", "xxxx", "\\\\\\\\", "oo", "++", "--")
WIDTH, DPI, FONT = 6.8, 110, 9
COLUMNS = 94  # characters of a caption line
POINT = 1 / 72
LETTER = 0.7 * FONT  # points: no digit or letter of a tick is wider
LESS = 0.995  # a ratio below this is not written as 1


@dataclass(frozen=True)
class Look:
    """How one rung is drawn wherever it appears."""

    color: str
    marker: str
    hatch: str


def look(index: int) -> Look:
    """The look of the rung at `index` on its ladder."""
    colors = COLORS + DARKER
    return Look(colors[index % len(colors)], MARKERS[index % len(MARKERS)], HATCHES[index % len(HATCHES)])


def page(
    title: str,
    subtitle: str = "",
    caption: str = "",
    *,
    height: float = 3.1,
    left: float = 1.0,
    right: float = 0.25,
    strip: float = 0.0,
    bottom: float = 0.5,
) -> tuple[Figure, Axes]:
    """A figure of WIDTH inches with one dressed axes of `height` inches, its heading above and its caption below.

    `left`, `right` and `bottom` are the margins of the axes, `strip` is kept free between heading and axes; all inches.
    """
    above, below = wrap(subtitle), wrap(caption)
    line = 13 * POINT
    top = 0.12 + 1.5 * line + line * len(above) + strip + 0.08
    foot = bottom + (line * len(below) + 0.1 if below else 0.0)
    total = top + height + foot
    fig = Figure(figsize=(WIDTH, total), dpi=DPI, facecolor=PAPER)
    FigureCanvasAgg(fig)
    ax = fig.add_axes((left / WIDTH, foot / total, (WIDTH - left - right) / WIDTH, height / total))
    edge = 0.12 / WIDTH
    fig.text(edge, 1 - 0.12 / total, title, fontsize=FONT + 2, fontweight="bold", color=INK, va="top")
    for number, text in enumerate(above):
        y = 1 - (0.12 + 1.5 * line + number * line) / total
        fig.text(edge, y, text, fontsize=FONT, color=MUTED, va="top")
    for number, text in enumerate(below):
        y = (0.08 + line * (len(below) - number)) / total
        fig.text(edge, y, text, fontsize=FONT, color=MUTED, va="top")
    dress(ax)
    return fig, ax


def blank(title: str, words: str, subtitle: str = "") -> Figure:
    """A page that says why there is nothing on it."""
    fig, ax = page(title, subtitle)
    ax.text(0.5, 0.5, words, transform=ax.transAxes, ha="center", va="center", fontsize=FONT, color=MUTED, wrap=True)
    ax.set_axis_off()
    return fig


def ruler() -> Figure:
    """An empty figure with the chart's fonts, to measure text on before the page's margins are known."""
    fig = Figure(figsize=(1, 1), dpi=DPI)
    FigureCanvasAgg(fig)
    return fig


def wrap(text: str, columns: int = COLUMNS) -> list[str]:
    """Lines of at most `columns` characters; a line break in `text` stays one."""
    return [line for part in text.split("\n") for line in textwrap.wrap(part, columns)]


def dress(ax: Axes) -> None:
    """Paper, spines, ticks and a light grid behind the data."""
    ax.set_facecolor(PAPER)
    ax.set_axisbelow(True)
    ax.grid(True, color=GRID, linewidth=0.7)
    ax.tick_params(which="both", labelsize=FONT, labelcolor=INK, color=MUTED)
    for side, spine in ax.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(MUTED)


def name_axes(ax: Axes, x: str = "", y: str = "") -> None:
    """Axis titles in the house size."""
    ax.set_xlabel(x, fontsize=FONT, color=INK)
    ax.set_ylabel(y, fontsize=FONT, color=INK)


def png(figure: Figure) -> bytes:
    """The figure as PNG bytes; the same figure gives the same bytes."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=DPI, facecolor=PAPER, edgecolor="none", metadata={"Software": None})
    return buffer.getvalue()


PREFIXED = ("s", "B", "B/s", "FLOP", "FLOP/s", "FLOP/B")


def worded(unit: str) -> bool:
    """True for a unit in words ('tokens/s'), which stands in an axis's name and not at each of its ticks."""
    return bool(unit) and unit not in (*PREFIXED, "x", "%")


def engineering(value: float, unit: str, digits: int = 3) -> str:
    """Three significant digits and an SI prefix: 0.0012, 's' -> '1.2 ms'; '%' and 'x' take no prefix."""
    if unit == "x":
        return times(value)
    if unit == "%":
        return f"{100 * value:.2g} %" if value < 0.1 else f"{100 * value:.0f} %"
    prefixes = {-12: "p", -9: "n", -6: "µ", -3: "m", 0: "", 3: "k", 6: "M", 9: "G", 12: "T", 15: "P"}
    if unit not in PREFIXED:
        return f"{value:,.{digits}g} {unit}".strip() if abs(value) < 999.5 else f"{value:,.0f} {unit}".strip()
    if not value:
        return f"0 {unit}"
    rounded = float(f"{value:.{digits}g}")
    power = max(-12, min(15, 3 * math.floor(math.log10(abs(rounded)) / 3)))
    if unit == "s" and power > 0:
        power = 0
    if unit in ("B", "FLOP/B") and power < 0:
        power = 0
    return f"{rounded / 10.0**power:.{digits}g} {prefixes[power]}{unit}"


def times(value: float) -> str:
    """A ratio: '0.42x', '0.97x', '1x', '2.3x', '29x', '1,200x'."""
    return f"{value:.2f}x" if value < LESS else f"{value:.1f}x".replace(".0x", "x") if value < 10 else f"{value:,.0f}x"


def count(value: object) -> str:
    """A workload's value: whole multiples of 1024 become '1k' (1024), other numbers keep their digits."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    if value >= 1024 and value % 1024 == 0:
        return f"{int(value) // 1024}k" if value < 2**20 else engineering_binary(value)
    return f"{value:,}"


def engineering_binary(value: float) -> str:
    """'1M' for 2**20; what `count` uses above a million."""
    return f"{value / 2**20:.3g}M"


def field_axis(ax: Axes, values: list[float]) -> None:
    """The x axis of a workload's field: base-2 logs, with ticks at the values measured, thinned where they crowd."""
    shown = sorted(set(values))
    if shown and shown[0] > 0 and len(shown) > 1 and shown[-1] / shown[0] >= 4:
        ax.set_xscale("log", base=2)
        pad = (shown[-1] / shown[0]) ** 0.04
        ax.set_xlim(shown[0] / pad, shown[-1] * pad)
    elif len(shown) > 1:
        pad = 0.05 * (shown[-1] - shown[0])
        ax.set_xlim(shown[0] - pad, shown[-1] + pad)
    elif shown:
        pad = max(0.05 * abs(shown[0]), 0.5)
        ax.set_xlim(shown[0] - pad, shown[0] + pad)
    ax.xaxis.set_major_locator(FixedLocator(_apart(ax, shown[:: -(-len(shown) // 9)])))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda v, _: _tick(v)))
    ax.xaxis.set_minor_locator(NullLocator())


def _tick(value: float) -> str:
    return count(round(value, 6) if value % 1 else int(value))


def _apart(ax: Axes, values: list[float]) -> list[float]:
    """`values` without those whose tick would stand within half a letter of the next larger one kept."""
    kept: list[float] = []
    left = math.inf
    for value in reversed(values):
        middle, half = (
            ax.transData.transform((value, 0))[0],
            LETTER * (len(_tick(value)) + 0.5) / 2 * ax.figure.dpi * POINT,
        )
        if middle + half < left:
            kept, left = [value, *kept], middle - half
    return kept


def value_axis(ax: Axes, values: list[float], unit: str, log: bool, axis: str = "y") -> None:
    """A measured axis with engineering ticks: log with a margin, or linear from zero."""
    which = ax.yaxis if axis == "y" else ax.xaxis
    limits = ax.set_ylim if axis == "y" else ax.set_xlim
    low, high = min(values), max(values)
    if log and low > 0:
        (ax.set_yscale if axis == "y" else ax.set_xscale)("log")
        limits(low / 1.35, high * 1.35)
        decades = math.log10(high / low * 1.8)
        near = decades < 2.2
        which.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if near else (1.0,), numticks=12))
        which.set_minor_locator(LogLocator(subs="all", numticks=99) if near else NullLocator())
        which.set_minor_formatter(NullFormatter())
    else:
        limits(0, high * 1.08 or 1)
        which.set_major_locator(MaxNLocator(6, steps=[1, 2, 2.5, 5, 10]))
    engineering_ticks(which, unit)


def engineering_ticks(which: Axis, unit: str = "") -> None:
    """Ticks as `engineering` writes them, on `ax.xaxis` say; the zero of a ratio or a share has no unit."""
    which.set_major_formatter(FuncFormatter(lambda v, _: engineering(v, unit) if v or unit not in ("x", "%") else "0"))
