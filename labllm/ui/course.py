"""The course of something over steps: a line a name, from zero, each named beside its end.

For what a replay or a run goes through. Lines may end early: what they count has come to its end. Colour repeats the
name. It shows one quantity; for how a whole divides into parts see `labllm.ui.shares`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from labllm.ui.labels import Label, margin, right_of
from labllm.ui.style import COLORS, engineering, engineering_ticks, name_axes, page, ruler, value_axis

Courses = Mapping[str, Sequence[float]]
STYLES = ("-", "--", "-.", ":")


def chart(
    courses: Courses,
    x: str,
    y: str,
    title: str,
    subtitle: str = "",
    *,
    unit: str = "%",
    caption: str = "",
    step: float = 1,
) -> Figure:
    """`courses` maps each name to its value at 0, `step`, 2 `step`, ... of `x`; unit '%' takes shares of 0 to 1.

    Raises ValueError where there is no course, or an empty one.
    """
    _checked(courses)
    names = [
        Label(step * (len(row) - 1), row[-1], name, COLORS[number % len(COLORS)])
        for number, (name, row) in enumerate(courses.items())
    ]
    fig, ax = page(title, subtitle, caption, right=margin(ruler(), names))
    for number, (name, row) in enumerate(courses.items()):
        style, color = STYLES[number % len(STYLES)], COLORS[number % len(COLORS)]
        places = [step * i for i in range(len(row))]
        ax.plot(places, row, color=color, linestyle=style, linewidth=1.6, label=name)
        ax.plot(places[-1], row[-1], marker="o", markersize=4, color=color)
    value_axis(ax, [1.0 if unit == "%" else max(map(max, courses.values()))], unit, log=False)
    ax.set_xlim(0, step * max(1, *(1.02 * len(row) for row in courses.values())))
    engineering_ticks(ax.xaxis)
    name_axes(ax, x, y)
    right_of(ax, names)
    return fig


def conclusion(courses: Courses, x: str, y: str, *, unit: str = "%") -> str:
    """The mean of each course over its second half, highest first."""
    _checked(courses)
    late = {name: sum(half := row[len(row) // 2 :]) / len(half) for name, row in courses.items()}
    ranked = sorted(late, key=late.__getitem__, reverse=True)
    words = ", ".join(f"{name} {engineering(late[name], unit)}" for name in ranked)
    return f"{y[:1].upper()}{y[1:]}, mean of the second half: {words}."


def _checked(courses: Courses) -> None:
    if not courses or not all(map(len, courses.values())):
        raise ValueError("a course needs at least one name, and each name at least one step")
