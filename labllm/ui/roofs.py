"""Roofs of several devices in one picture, and named pieces of work under them.

`ui.roofline` follows the rungs of one ladder; here each mark is a piece of work with a name (a part of a layer, a
whole step) and each roof a device, so that one sees which limit a piece meets and on which device it would meet the
other.

Formula: `labllm.roofline`. Marks stand at FLOPs over bytes and at the rate that they reached, or that they could
reach.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from labllm.bench import Roof
from labllm.roofline import attainable_rate, ridge
from labllm.ui.crowds import name_marks
from labllm.ui.labels import Label, margin, right_of
from labllm.ui.series import here_name, short_name
from labllm.ui.style import COLORS, FONT, INK, MARKERS, PAPER, engineering, name_axes, page, value_axis

DASHES = {"measured": "-", "recorded": "-", "datasheet": "--"}
SAMPLES = 48


@dataclass(frozen=True)
class Mark:
    """A piece of work: FLOPs a byte and FLOP/s; marks of one `family` share colour and marker. No `name`, no label."""

    name: str
    intensity: float
    rate: float
    family: str = ""


def chart(
    roofs: Sequence[Roof],
    marks: Sequence[Mark] = (),
    dtype: str = "float16",
    *,
    title: str = "Roofs",
    subtitle: str = "",
    caption: str = "",
) -> Figure:
    """`roofs` with their peak for `dtype`, and `marks` under them.

    Raises ValueError where no roof knows a rate for `dtype`.
    """
    roofs = _fit(roofs, dtype)
    ridges = [ridge(r.flops[dtype], r.bandwidth) for r in roofs]
    low = min([m.intensity for m in marks] + ridges) / (4 if marks else 100)
    high = max([m.intensity for m in marks] + ridges) * 5
    names = [Label(0, 0, _sign(roof, dtype)) for roof in roofs]
    families = list(dict.fromkeys(m.family for m in marks))
    right = margin(page("")[0], names)
    fig, ax = page(title, subtitle, caption, height=3.7, left=1.2, right=right, strip=0.25 if any(families) else 0.1)
    value_axis(ax, [low, high], "FLOP/B", True, axis="x")
    ax.set_xlim(low, high)
    reach = [attainable_rate(i, r.flops[dtype], r.bandwidth) for r in roofs for i in (low, high)]
    frame = [2 * max(reach), min(m.rate for m in marks) / 2] if marks else []  # room for names above and below
    value_axis(ax, [*(m.rate for m in marks), *reach, *frame], "FLOP/s", True)
    lines = [_roof(ax, roof, dtype, low, high, number) for number, roof in enumerate(roofs)]
    _marks(ax, marks, families)
    clear = [point for _, line in lines for point in line]
    labels = [Label(m.intensity, m.rate, m.name, _color(m, families)) for m in marks if m.name]
    name_marks(ax, labels, [*clear, *((m.intensity, m.rate) for m in marks)])
    right_of(ax, [label for label, _ in lines])
    name_axes(ax, "arithmetic intensity: FLOPs for each byte moved", f"rate, {dtype}")
    if any(families):
        ax.legend(
            loc="lower left",
            bbox_to_anchor=(-0.01, 1.0),
            ncols=len(families),
            frameon=False,
            fontsize=FONT,
            borderpad=0.1,
            handletextpad=0.2,
            columnspacing=1.2,
        )
    return fig


def conclusion(roofs: Sequence[Roof], marks: Sequence[Mark] = (), dtype: str = "float16") -> str:
    """Where each roof has its ridge; or which marks stand on which side of the first roof's ridge."""
    roofs = _fit(roofs, dtype)
    if not marks:
        ridges = [f"{engineering(ridge(r.flops[dtype], r.bandwidth), 'FLOP/B')} on {_name(r)}" for r in roofs]
        where = f"The ridge in {dtype} lies at {_listed(ridges)}."
        return f"With fewer FLOPs a byte than at the ridge, memory is the limit. {where}"
    edge = ridge(roofs[0].flops[dtype], roofs[0].bandwidth)
    sides = {
        "memory": [m for m in marks if m.intensity < edge],
        "arithmetic": [m for m in marks if m.intensity >= edge],
    }
    parts = []
    for limit, side in sides.items():
        families = list(dict.fromkeys(m.family for m in side))
        named = [_side(family, [m.name for m in side if m.family == family], marks) for family in families]
        if named:
            parts.append(f"{limit} is the limit of {_listed(named)}")
    return f"With the {dtype} ridge of {_name(roofs[0])} at {engineering(edge, 'FLOP/B')}, {'; '.join(parts)}."


def _side(family: str, names: Sequence[str], marks: Sequence[Mark]) -> str:
    whole = len(names) == sum(m.family == family for m in marks) and len(names) > 1
    words = "all parts" if whole else _listed(names)
    return f"{words} ({family})" if family else words


def _listed(words: Sequence[str]) -> str:
    return f"{', '.join(words[:-1])} and {words[-1]}" if len(words) > 1 else words[0]


def _fit(roofs: Sequence[Roof], dtype: str) -> list[Roof]:
    fit = [r for r in roofs if r.flops.get(dtype)]
    if not fit:
        raise ValueError(f"no roof knows a rate for {dtype}; give one that does, such as Roof.of_spec(...)")
    return fit


def _name(roof: Roof) -> str:
    return f"{'this machine' if roof.name == here_name() else short_name(roof.name)} ({roof.source})"


def _sign(roof: Roof, dtype: str) -> str:
    """A roof's name, and where its ridge lies in that dtype."""
    return f"{_name(roof)}\nridge {engineering(ridge(roof.flops[dtype], roof.bandwidth), 'FLOP/B')}, {dtype}"


def _color(mark: Mark, families: Sequence[str]) -> str:
    return COLORS[families.index(mark.family) % len(COLORS)]


def _roof(
    ax: Axes, roof: Roof, dtype: str, low: float, high: float, number: int
) -> tuple[Label, list[tuple[float, float]]]:
    peak = roof.flops[dtype]
    edge = ridge(peak, roof.bandwidth)
    xs = sorted([low * (high / low) ** (i / SAMPLES) for i in range(SAMPLES + 1)] + [edge])
    line = [(x, attainable_rate(x, peak, roof.bandwidth)) for x in xs]
    color = INK if number == 0 else COLORS[number % len(COLORS)]
    ax.plot(*zip(*line, strict=True), linestyle=DASHES.get(roof.source, "-"), color=color, linewidth=1.6)
    ax.plot([edge], [peak], marker="|", markersize=11, color=color)
    return Label(*line[-1], _sign(roof, dtype), color), line


def _marks(ax: Axes, marks: Sequence[Mark], families: Sequence[str]) -> None:
    for number, family in enumerate(families):
        mine = [m for m in marks if m.family == family]
        ax.plot(
            [m.intensity for m in mine],
            [m.rate for m in mine],
            linestyle="",
            marker=MARKERS[number % len(MARKERS)],
            markersize=8,
            color=_color(mine[0], families),
            markeredgecolor=PAPER,
            zorder=3,
            label=family,
        )
