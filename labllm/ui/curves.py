"""Curves: a quantity over one field of the workload, one line a rung and machine, with the limit that the roof sets.

Full marks and lines are this machine, hollow ones are recorded elsewhere, dashed ones come from older code. Bars
reach from p10 to p90. A line breaks where its rung was not measured and others of the machine were. A point that could
not be measured is a cross in the strip above the axes, with the reason in words.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from labllm.bench import Ladder, Record
from labllm.ui.crowds import name_marks
from labllm.ui.labels import Label, margin, right_of
from labllm.ui.limits import along, limits, span
from labllm.ui.phrase import amount, short
from labllm.ui.series import Series, elsewhere, reaches, say
from labllm.ui.sheet import Limit, Point, Sheet
from labllm.ui.style import (
    FONT,
    INK,
    MUTED,
    PAPER,
    POINT,
    blank,
    engineering,
    field_axis,
    name_axes,
    page,
    ruler,
    value_axis,
    worded,
)

ROW = 14 * POINT
FAR = 2  # places of the field behind a line's end, from which its name would be too far away in the margin
NEAR = 1.05  # values up to this factor apart are as good as equal
NOTHING = Point(None, *[math.nan] * 4)  # a break of a line
EMPTY = "Nothing is measured at these settings yet: press Run."


def chart(
    ladder: Ladder,
    records: Iterable[Record],
    x: str,
    y: str = "time",
    *,
    wanted: Mapping[str, Any] | None = None,
    baseline: str | None = None,
    here: str | None = None,
    rungs: Collection[str] | None = None,
) -> Figure:
    """Draw quantity `y` of `records` over field `x`.

    wanted    the setting that was asked for; the caption says where a machine's records differ from it
    baseline  the rung that a speed-up is against (default: the ladder's first)
    here      this machine's name (default: as `bench` records it)
    rungs     the rungs to draw (default: all that have records); the baseline need not be among them

    Raises ValueError for an unknown field, quantity or baseline, and where one machine's records mix settings.
    """
    sheet = Sheet.of(ladder, records, x, y, wanted, baseline, here, rungs)
    texts = (sheet.ladder.title, sheet.subtitle, sheet.caption)
    names, alone = _names(sheet)
    roofs = [Label(0, 0, sheet.limit_name(limit)) for limit in sheet.limits]
    rows = [Label(0, 0, f"{sheet.name(s)}: {word}", s.look.color) for s, word, _ in sheet.gaps]
    if not sheet.places:
        return blank(sheet.ladder.title, EMPTY, sheet.subtitle)
    strip = ROW * sum(len(row.lines) for row in rows) + (4 * POINT if rows else 0)
    fig, ax = page(*texts, strip=strip, left=1.15, right=max(0.3, margin(ruler(), [*names, *roofs, *rows])))
    _scales(ax, sheet)
    unit = sheet.y.unit
    outer, inner = limits(ax, sheet)
    if sheet.y.name == "speedup":
        ax.axhline(1, color=MUTED, linewidth=1)
    for s, points in sheet.lines:
        around = {p.place for other, others in sheet.lines if other.host == s.host for p in others}
        _line(ax, s, broken(points, around), sheet.x.numeric)
    remark = f" (1x = {sheet.base})" if sheet.y.name == "speedup" else f" ({unit})" if worded(unit) else ""
    name_axes(ax, sheet.x.title, sheet.y.title + remark)
    right_of(ax, [*names, *outer])
    name_marks(ax, [*alone, *inner], [spot for line in ax.lines for spot in along(ax, line)])
    _strip(ax, sheet, rows)
    return fig


def conclusion(
    ladder: Ladder,
    records: Iterable[Record],
    x: str,
    y: str = "time",
    *,
    wanted: Mapping[str, Any] | None = None,
    baseline: str | None = None,
    here: str | None = None,
    rungs: Collection[str] | None = None,
) -> str:
    """What the curves say, in one sentence: best and worst rung at the largest common point, and where it turns."""
    sheet = Sheet.of(ladder, records, x, y, wanted, baseline, here, rungs)
    lines = [(s, {p.x: p.y for p in points}) for s, points in sheet.lines]
    if not lines:
        return EMPTY
    first = next((s for s, _ in lines if s.here), lines[0][0])
    mine = {s.rung: values for s, values in lines if s.host == first.host}
    common = [v for v in _in_order(sheet, sheet.places) if sum(v in values for values in mine.values()) > 1]
    place = "on this machine" if first.here else f"on {first.machine}"
    if differs := elsewhere([first], x, wanted):
        place += f" (recorded at {say(differs, ladder)})"
    limit = next((limit for limit in sheet.limits if limit.machine == first.machine), None)
    return _compared(sheet, mine, common[0], common[-1], place, limit) if common else _alone(sheet, mine, place)


def _in_order(sheet: Sheet, values: Iterable[Any]) -> list[Any]:
    """Values of the field as they stand on the axis."""
    return sorted(values, key=sheet.places.__getitem__)


def _alone(sheet: Sheet, mine: Mapping[str, Mapping[Any, float]], place: str) -> str:
    rung, values = next(iter(mine.items()))
    q, (first, *_, last) = sheet.y, 2 * _in_order(sheet, values)
    against = f" as fast as {sheet.base}" if q.name == "speedup" else ""
    text = f"{rung} {q.verb} {engineering(values[first], q.unit)}{against} with {_of(sheet, first)}"
    then = f" and {engineering(values[last], q.unit)} with {short(sheet.x.unit, last)}" if last != first else ""
    return f"{text}{then} {place}."


def _compared(
    sheet: Sheet, mine: Mapping[str, Mapping[Any, float]], first: Any, last: Any, place: str, limit: Limit | None
) -> str:
    q = sheet.y
    ranked = sorted(((values[last], rung) for rung, values in mine.items() if last in values), reverse=not q.falls)
    (best, winner), (worst, loser) = ranked[0], ranked[-1]
    text = f"With {_of(sheet, last)} {place}, "
    if q.name == "speedup":
        behind = f"nothing is faster than {sheet.base} and {loser} is {engineering(worst, 'x')} as fast"
        text += behind if winner == sheet.base else f"{winner} is {engineering(best, 'x')} as fast as {sheet.base}"
    else:
        low, high = sorted((best, worst))
        text += f"{winner} {q.verb} {engineering(best, q.unit)} and {loser} {engineering(worst, q.unit)}"
        if low > 0 or low == high:
            near = high <= NEAR * low
            text += ", which is as good as equal" if near else f", a factor of {engineering(high / low, 'x')[:-1]}"
        if limit and (bound := limit.at.get(sheet.places[last])):
            share = bound / best if q.falls else best / bound
            text += "; " + reaches(winner, share, f"{limit.source} limit")
    early = [mine[rung].get(first) for rung in (winner, loser)]
    if None not in early and early[0] != early[1] and (early[0] > early[1]) == q.falls:
        near = 0 < max(early) <= NEAR * min(early)
        turned = "they are as good as equal" if near else "it is the other way round"
        text += f"; with {short(sheet.x.unit, first)} {turned}"
    return text + "."


def _of(sheet: Sheet, value: Any) -> str:
    return amount(sheet.x.label, sheet.x.unit, value)


def _names(sheet: Sheet) -> tuple[list[Label], list[Label]]:
    """Names for the right margin, and those that stand by the end of a line, or by a single mark, far from it."""
    names, alone = [], []
    for s, (*before, end) in sheet.lines:
        name = Label(end.place, end.y, " · ".join([sheet.name(s), *s.remarks]), s.look.color)
        behind = sum(place > end.place for place in sheet.places.values())
        (alone if behind >= (FAR if before else 1) else names).append(name)
    return names, alone


def _scales(ax: Axes, sheet: Sheet) -> None:
    if sheet.x.numeric:
        field_axis(ax, list(sheet.places.values()))
    else:
        ax.set_xlim(-0.5, len(sheet.places) - 0.5)
        ax.set_xticks(range(len(sheet.places)), [str(v) for v in sheet.places])
    if len(sheet.places) == 1:  # the marks stand near the names
        left, right = ax.get_xlim()
        (place,) = sheet.places.values()
        ax.set_xlim(left, place + 0.12 * (right - place))
    values = [v for _, points in sheet.lines for p in points for v in (p.y, p.low, p.high)]
    if not values:
        ax.set_yticks([])
        return
    values, log = span(sheet, values)
    value_axis(ax, values, "" if worded(sheet.y.unit) else sheet.y.unit, log)


def broken(points: Sequence[Point], around: Collection[float]) -> list[Point]:
    """`points` with nothing between two that have a place of `around` between them: a line there would be a guess."""
    shown = list(points[:1])
    for before, point in pairwise(points):
        shown += [NOTHING] if any(before.place < place < point.place for place in around) else []
        shown.append(point)
    return shown


def _line(ax: Axes, s: Series, points: list[Point], joined: bool) -> None:
    ax.errorbar(
        [p.place for p in points],
        [p.y for p in points],
        yerr=[[max(0.0, p.y - p.low) for p in points], [max(0.0, p.high - p.y) for p in points]],
        color=s.look.color,
        marker=s.look.marker,
        markersize=6,
        capsize=2.5,
        elinewidth=1,
        markerfacecolor=s.look.color if s.here else PAPER,
        linestyle=("--" if s.old else "-") if joined else "none",
        linewidth=1.8 if s.here else 1.3,
        label=f"{s.rung} · {s.machine}",
        zorder=3 if s.here else 2.5,
    )


def _strip(ax: Axes, sheet: Sheet, rows: list[Label]) -> None:
    height = ax.figure.get_figheight() * ax.get_position().height
    lines = sum(len(row.lines) for row in rows)
    for (s, _, places), row in zip(sheet.gaps, rows, strict=True):
        level = 1 + (ROW * (lines - (len(row.lines) - 1) / 2) - 3 * POINT) / height
        lines -= len(row.lines)
        ax.plot(
            places,
            [level] * len(places),
            transform=ax.get_xaxis_transform(),
            linestyle="none",
            marker="x",
            markersize=6,
            markeredgewidth=1.8,
            color=s.look.color,
            clip_on=False,
            label=row.text,
        )
        ax.annotate(
            "\n".join(row.lines),
            (1, level),
            xycoords="axes fraction",
            xytext=(20, 0),
            textcoords="offset points",
            fontsize=FONT,
            color=INK,
            va="center",
            annotation_clip=False,
        )
