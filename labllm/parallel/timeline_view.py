"""A pipeline's timeline as a picture: a row a stage, a box a micro-batch, grey where a stage had nothing to do.

A box bears the number of its micro-batch; colour and hatch tell the step (the token) apart. Several ways of running the
same work stand below each other on one time axis. It loses where there are hundreds of boxes: draw a few steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from labllm.parallel.timeline import Span, bubble, length
from labllm.ui.style import COLORS, FONT, HATCHES, INK, PAPER, engineering, name_axes, page, value_axis, worded

Groups = Mapping[str, Sequence[Span]]
IDLE = "#E3E3E3"
ROW, HEAD = 0.27, 0.3  # inches of a stage's row, and of a group's heading
LEAST = 0.018  # of the whole width: a narrower box bears no number
LOOKS = 6  # step 6 looks as step 0


def chart(groups: Groups, title: str, subtitle: str = "", *, unit: str = "s", caption: str = "") -> Figure:
    """`groups` maps each way to its spans, drawn from its first start on. ValueError where a group has none."""
    if not groups or not all(groups.values()):
        raise ValueError("a timeline needs at least one group, and a group at least one span")
    stages = {name: 1 + max(span.task.stage for span in spans) for name, spans in groups.items()}
    steps = 1 + max(span.task.step for spans in groups.values() for span in spans)
    longest = max(map(length, groups.values()))
    height = sum(HEAD + ROW * count for count in stages.values())
    fig, ax = page(title, subtitle, caption, height=height, left=0.75, right=0.2, strip=0.28 * (steps > 1))
    ticks: dict[float, str] = {}
    top = 0.0
    for name, spans in groups.items():
        top += HEAD
        heading = f"{name}: {engineering(length(spans), unit)}, bubble {bubble(spans):.0%}"
        ax.text(0.005 * longest, top - 0.08, heading, fontsize=FONT, color=INK, fontweight="bold")
        for stage in range(stages[name]):
            y = top + ROW * stage
            ax.add_patch(Rectangle((0, y + 0.02), length(spans), ROW - 0.04, facecolor=IDLE, linewidth=0))
            ticks[y + ROW / 2] = f"stage {stage}"
        _boxes(ax, spans, top, longest)
        top += ROW * stages[name]
    value_axis(ax, [longest], "" if worded(unit) else unit, log=False, axis="x")
    ax.set_xlim(0, 1.01 * longest)
    ax.set_ylim(top, 0)
    ax.set_yticks(list(ticks), list(ticks.values()))
    ax.tick_params(axis="y", length=0)
    ax.grid(False, axis="y")
    name_axes(ax, f"time ({unit})" if worded(unit) else "time")
    if steps > 1:
        ax.legend(
            handles=[_key(step) for step in range(min(steps, LOOKS))], loc="lower left", bbox_to_anchor=(-0.01, 1.0),
            ncols=min(steps, LOOKS), frameon=False, fontsize=FONT, borderpad=0.1, handlelength=1.6, columnspacing=1.4,
        )  # fmt: skip
    return fig


def rows(groups: Groups) -> list[dict[str, object]]:
    """Of each way its time, its bubble, and what a stage computes in the mean: time times (1 - bubble)."""
    return [
        {
            "way": name,
            "time (ms)": 1e3 * length(spans),
            "bubble (%)": 100 * bubble(spans),
            "a stage computes (ms)": 1e3 * length(spans) * (1 - bubble(spans)),
        }
        for name, spans in groups.items()
    ]


def conclusion(groups: Groups) -> str:
    """What of the stages' time was a bubble, in each way."""
    told = [f"{bubble(spans):.0%} with {name}" for name, spans in groups.items()]
    return f"Of the stages' time the bubble takes {', '.join(told)}."


def _boxes(ax: Axes, spans: Sequence[Span], top: float, longest: float) -> None:
    begin = min(span.start for span in spans)
    rows: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for span in spans:
        rows.setdefault((span.task.stage, span.task.step), []).append((span.start - begin, span.seconds))
        if span.seconds > LEAST * longest:
            x, y = span.start - begin + span.seconds / 2, top + ROW * (span.task.stage + 0.5)
            words = ax.text(x, y, str(span.task.micro_batch), fontsize=FONT - 1, color=INK, ha="center", va="center")
            words.set_bbox({"facecolor": PAPER, "edgecolor": "none", "boxstyle": "round,pad=0.12"})
    for (stage, step), boxes in rows.items():
        ax.broken_barh(boxes, (top + ROW * stage + 0.02, ROW - 0.04), **_look(step), linewidth=0.8, zorder=2)


def _look(step: int) -> dict[str, str]:
    number = step % LOOKS
    return {"facecolor": COLORS[number], "hatch": HATCHES[number], "edgecolor": PAPER}


def _key(step: int) -> Patch:
    return Patch(**_look(step), linewidth=0.5, label=f"step {step}")
