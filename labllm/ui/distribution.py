"""Distributions: for every value, the share of cases that do not exceed it, a curve a way.

A median and a 99th percentile are two points of such a curve; the rest says whether a tail is long or whether there are
two kinds of cases. A curve further to the left is the better one. It loses where curves cross often: then say which
part matters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter

from labllm.ui.style import FONT, INK, MUTED, engineering, look, name_axes, page, value_axis

STYLES = ("-", "--", "-.", ":", (0, (6, 1, 1, 1, 1, 1)))
Samples = Mapping[str, Sequence[float]]


def chart(
    samples: Samples,
    what: str,
    unit: str,
    title: str,
    subtitle: str = "",
    *,
    of: str = "requests",
    promise: float | None = None,
    caption: str = "",
) -> Figure:
    """`samples` maps each way to its values of `what` in `unit`; `promise` draws a limit that was agreed.

    Raises ValueError where a way has no values or a value is not positive.
    """
    _checked(samples)
    fig, ax = page(title, subtitle, caption, strip=0.3)
    for number, (name, values) in enumerate(samples.items()):
        ordered = np.sort(np.asarray(values, dtype=float))
        share = np.arange(1, len(ordered) + 1) / len(ordered)
        style = STYLES[number % len(STYLES)]
        ax.step(ordered, share, where="post", color=look(number).color, linestyle=style, linewidth=1.8, label=name)
        ax.plot([ordered[-1]], [1.0], marker=look(number).marker, color=look(number).color, markersize=6, clip_on=False)
    if promise is not None:
        ax.axvline(promise, color=MUTED, linewidth=1.0, linestyle=(0, (2, 2)))
        ax.text(promise, 0.02, " promised", fontsize=FONT, color=INK, va="bottom")
    every = [v for values in samples.values() for v in values] + ([promise] if promise else [])
    value_axis(ax, every, unit, log=max(every) > 4 * min(every), axis="x")
    ax.set_ylim(0, 1)
    ax.yaxis.set_major_locator(FixedLocator([0, 0.25, 0.5, 0.75, 1]))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{100 * v:.0f} %"))
    name_axes(ax, what, f"share of {of} at most")
    ax.legend(
        loc="lower left", bbox_to_anchor=(-0.01, 1.0), ncols=min(4, len(samples)), frameon=False, fontsize=FONT,
        borderpad=0.1, handlelength=2.2, columnspacing=1.4,
    )  # fmt: skip
    return fig


def conclusion(samples: Samples, what: str, unit: str, *, of: str = "requests", promise: float | None = None) -> str:
    """Median and 99th percentile of each way, and the share that keeps the promise. Raises ValueError as `chart`."""
    _checked(samples)
    parts = []
    for name, values in samples.items():
        half, most = np.quantile(values, (0.5, 0.99), method="inverted_cdf")
        part = f"{name} {engineering(float(half), unit)} ({engineering(float(most), unit)})"
        if promise is not None:
            part += f", {np.mean(np.asarray(values) <= promise):.0%} keep the promise"
        parts.append(part)
    return f"{what[:1].upper()}{what[1:]}, at most, for half of the {of} (for 99 %): {'; '.join(parts)}."


def _checked(samples: Samples) -> None:
    for name, values in samples.items():
        if not len(values) or min(values) <= 0:
            raise ValueError(f"{name!r} needs at least one value, and positive ones")
    if not samples:
        raise ValueError("a distribution needs at least one way")
