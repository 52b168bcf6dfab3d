"""The roofline: what a machine allows at each arithmetic intensity, and where each rung's work really stands.

A rung stands at the FLOPs and bytes that it moves, not at those that the workload must cost: computing more or
moving more is what separates it from its neighbours, and its label says so. The dotted upright is where the
workload could be.

Formula: `labllm.roofline`. It loses where a cache between memory and cores serves the bytes: points may then stand
above.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from labllm.bench import Ladder, Record, Roof
from labllm.roofline import attainable_rate, ridge
from labllm.ui.crowds import name_marks
from labllm.ui.labels import Label, right_of
from labllm.ui.series import HERE, here_name, reaches, say, short_name
from labllm.ui.style import FONT, INK, MUTED, PAPER, count, engineering, look, name_axes, page, times, value_axis

DASHES = {"measured": "-", "datasheet": "--"}
SAMPLES = 64


def chart(
    ladder: Ladder, records: Iterable[Record], roofs: Sequence[Roof], dtype: str = "float32", *, here: str | None = None
) -> Figure:
    """Points of `records` under `roofs`, with their peak rate for `dtype`; records of one rung and machine are joined.

    Raises ValueError where no record has both a time and FLOPs, or where no roof knows a rate for `dtype`.
    """
    points, roofs, here = _placed(ladder, records), _fit(roofs, dtype), here or here_name()
    caption = _caption(points, roofs, dtype, here)
    fig, ax = page(ladder.title, _setting(ladder, points), caption, height=3.6, strip=0.2, left=1.15, right=1.35)
    intensities = [r.moved.flops / r.moved.bytes for r in points] + [ridge(r.flops[dtype], r.bandwidth) for r in roofs]
    low, high = min(intensities) / 4, max(intensities) * 6
    rates = [_rate(r) for r in points]
    rates = [
        min(rates) / 2.5,
        *rates,
        *(attainable_rate(i, r.flops[dtype], r.bandwidth) for r in roofs for i in (low * 4, high)),
    ]
    value_axis(ax, [low, high], "FLOP/B", True, axis="x")
    ax.set_xlim(low, high)
    value_axis(ax, rates, "FLOP/s", True)
    bottom, top = ax.get_ylim()
    lines = [_roof(ax, roof, dtype, low, high) for roof in roofs]
    upright = _must_cost(ax, points)
    clear = [p for _, line in lines for p in 2 * line] + [  # words hide the upright rather than a roof
        (upright, bottom * (top / bottom) ** (i / SAMPLES)) for i in range(SAMPLES)
    ]
    name_axes(ax, "arithmetic intensity: FLOPs for each byte moved", f"achieved rate, {dtype}")
    path = [(r.moved.flops / r.moved.bytes, _rate(r)) for r in points]
    name_marks(
        ax,
        _points(ax, ladder, points, here),
        path + [(x, y) for x, y in clear if low <= x <= high and bottom <= y <= top],
    )
    right_of(ax, [label for label, _ in lines])
    return fig


def conclusion(
    ladder: Ladder, records: Iterable[Record], roofs: Sequence[Roof], dtype: str = "float32", *, here: str | None = None
) -> str:
    """Which limit binds the last record's workload, and how near to its roof the best and the worst rung come."""
    points, roofs, here = _placed(ladder, records), _fit(roofs, dtype), here or here_name()
    mine = [r for r in points if r.host.name == here] or points
    last = [r for r in mine if r.workload == mine[-1].workload]
    best, worst = min(last, key=lambda r: r.seconds or 0), max(last, key=lambda r: r.seconds or 0)
    own = [r for r in roofs if short_name(r.name) in short_name(best.host.name)] or roofs
    roof = next((r for r in own if r.source != "datasheet"), own[0])
    intensity = best.compulsory.flops / best.compulsory.bytes
    binds = "memory bandwidth" if intensity < ridge(roof.flops[dtype], roof.bandwidth) else "arithmetic"
    share = _rate(best) / attainable_rate(best.moved.flops / best.moved.bytes, roof.flops[dtype], roof.bandwidth)
    text = (
        f"With {engineering(intensity, 'FLOP/B')} the workload is bound by {binds} on {_machine(best, here)}; "
        f"{reaches(best.rung, share, f'{roof.source} roof')}"
    )
    excess = _excess(worst)
    return text + (f", and {worst.rung} {excess}." if worst is not best and excess else ".")


def _placed(ladder: Ladder, records: Iterable[Record]) -> list[Record]:
    points = [r for r in records if r.ladder == ladder.name and r.time and r.moved.flops and r.moved.bytes]
    if not points:
        raise ValueError(
            f"no record of ladder {ladder.name!r} has a time and FLOPs, so there is no point to set under a roof"
        )
    return points


def _fit(roofs: Sequence[Roof], dtype: str) -> list[Roof]:
    fit = [r for r in roofs if r.flops.get(dtype)]
    if not fit:
        raise ValueError(
            f"no roof knows a rate for {dtype}; give one of bench.ceilings() or Roof.of_spec(...) that does"
        )
    return fit


def _rate(record: Record) -> float:
    return record.moved.flops / record.time.median if record.time else 0.0


def _excess(record: Record) -> str:
    """'moves 8x the bytes it must', with the FLOPs where those exceed too; empty where it pays what it must."""
    pairs = (
        ("moves", "bytes", record.moved.bytes, record.compulsory.bytes),
        ("computes", "FLOPs", record.moved.flops, record.compulsory.flops),
    )
    parts = [
        f"{verb} {times(moved / must)} the {what}" for verb, what, moved, must in pairs if must and moved / must > 1.05
    ]
    return f"{', '.join(parts)} it must" if parts else ""


def _machine(record: Record, here: str) -> str:
    return "this machine" if record.host.name == here else short_name(record.host.name)


def _setting(ladder: Ladder, points: Sequence[Record]) -> str:
    """What all points share, and what changes along the paths that join them."""
    first, last = points[0].workload, points[-1].workload
    shared = {n: v for n, v in first.items() if all(r.workload.get(n) == v for r in points)}
    paths = [f"{say({n: first[n]}, ladder)} to {count(last[n])}" for n in first if n not in shared]
    return say(shared, ladder) + (
        f"\neach path runs from {', '.join(paths)}; its large mark is the end" if paths else ""
    )


def _caption(points: Sequence[Record], roofs: Sequence[Roof], dtype: str, here: str) -> str:
    lines = []
    for roof in roofs:
        rates = f"{engineering(roof.bandwidth, 'B/s')}, {engineering(roof.flops[dtype], 'FLOP/s')}"
        lines.append(f"{roof.source} roof of {short_name(roof.name)}: {rates}")
    for host in dict.fromkeys(r.host.name for r in points):
        dates = sorted({r.date for r in points if r.host.name == host})
        shared = "; shared GPU" if any(r.host.shared for r in points if r.host.name == host) else ""
        name = f"{HERE}: this machine ({short_name(host)})" if host == here else f"recorded on {host}"
        lines.append(f"{name}, {', '.join(dates)}{shared}")
    return "\n".join(lines)


def _roof(ax: Axes, roof: Roof, dtype: str, low: float, high: float) -> tuple[Label, list[tuple[float, float]]]:
    """Draw one roof; its name for the right margin, and points along it that labels should keep clear."""
    peak = roof.flops[dtype]
    xs = sorted([low * (high / low) ** (i / SAMPLES) for i in range(SAMPLES + 1)] + [ridge(peak, roof.bandwidth)])
    line = [(x, attainable_rate(x, peak, roof.bandwidth)) for x in xs]
    ax.plot(
        *zip(*line, strict=True),
        linestyle=DASHES.get(roof.source, "-"),
        color=INK,
        linewidth=1.5,
        label=f"{roof.source} roof",
    )
    return Label(*line[-1], f"{roof.source} roof", INK), line


def _must_cost(ax: Axes, points: Sequence[Record]) -> float:
    """Mark the intensity of the last record's compulsory cost."""
    intensity = points[-1].compulsory.flops / points[-1].compulsory.bytes
    ax.axvline(intensity, color=MUTED, linestyle=":", linewidth=1.2)
    ax.annotate(
        f"the workload's own: {engineering(intensity, 'FLOP/B')}",
        (intensity, 1),
        xycoords=ax.get_xaxis_transform(),
        xytext=(0, 4),
        textcoords="offset points",
        fontsize=FONT,
        color=MUTED,
        va="bottom",
        ha="center",
    )
    return intensity


def _points(ax: Axes, ladder: Ladder, points: Sequence[Record], here: str) -> list[Label]:
    order = [r.name for r in ladder.rungs] + sorted({r.rung for r in points} - {r.name for r in ladder.rungs})
    many = len({r.host.name for r in points}) > 1
    labels = []
    for host, rung in sorted(
        {(r.host.name, r.rung) for r in points}, key=lambda k: (k[0] != here, k[0], order.index(k[1]))
    ):
        mine = [r for r in points if (r.host.name, r.rung) == (host, rung)]
        style = look(order.index(rung))
        xs, ys = [r.moved.flops / r.moved.bytes for r in mine], [_rate(r) for r in mine]
        look_of = {
            "color": style.color,
            "marker": style.marker,
            "markerfacecolor": style.color if host == here else PAPER,
        }
        ax.plot(xs, ys, markersize=4, linewidth=1, label=f"{rung} · {host}", **look_of)
        ax.plot(xs[-1:], ys[-1:], markersize=9, zorder=3, **look_of)
        name = f"{rung} · {HERE if host == here else short_name(host)}" if many else rung
        excess = _excess(mine[-1])
        labels.append(Label(xs[-1], ys[-1], f"{name}:\n{excess}" if excess else name, style.color))
    return labels
