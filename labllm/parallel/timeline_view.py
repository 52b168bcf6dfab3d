"""Timelines of pipelines as pictures: a row a stage, a colour a micro-batch, and white where a stage waits.

`draw` takes what `Stopwatch` measured or `simulate` computed. `pipelines` is a panel over sizes that this machine need
not have: it plays both schedules with stages that may be unequal and links that may be slow. Nothing in it is measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd
from matplotlib.figure import Figure

from labllm.parallel.schedules import SCHEDULES, bubble_fraction
from labllm.parallel.timeline import Span, bubble, length, simulate, stage_seconds
from labllm.ui import Panel, View, gantt, slider
from labllm.ui.style import engineering

STEPS = 3
LOOKS = 8  # micro-batches that look different; the ninth looks as the first
TICK = "ticks"


def draw(
    timelines: Mapping[str, Sequence[Span]], title: str, subtitle: str = "", *, unit: str = "s", caption: str = ""
) -> Figure:
    """Each timeline as a group of rows, its first stage on top. Raises ValueError for a timeline without a task."""
    groups = {name: rows(spans) for name, spans in timelines.items()}
    return gantt.chart(groups, title, subtitle, unit=unit, caption=caption)


def rows(spans: Sequence[Span]) -> list[dict[str, list[tuple[float, float]]]]:
    """For each stage its spans (start, length) by micro-batch, from the first start on."""
    begin = min((span.start for span in spans), default=0.0)
    kinds = sorted({_kind(span) for span in spans})
    every: list[dict[str, list[tuple[float, float]]]] = []
    for stage in sorted({span.task.stage for span in spans}):
        mine = [span for span in spans if span.task.stage == stage]
        every.append({_name(kind): [_bar(span, begin) for span in mine if _kind(span) == kind] for kind in kinds})
    return every


def conclusion(timelines: Mapping[str, Sequence[Span]], unit: str = "s") -> str:
    """How long each took and how much of it was a bubble."""
    parts = [
        f"{name} takes {engineering(length(spans), unit)}, {bubble(spans):.0%} of it a bubble"
        for name, spans in timelines.items()
    ]
    return f"{'; '.join(parts)}.".capitalize()


def table(timelines: Mapping[str, Sequence[Span]], unit: str = "s") -> pd.DataFrame:
    """A row a timeline: its length, its bubble, and the mean of each stage's tasks."""
    return pd.DataFrame(
        [
            {"schedule": name, f"time ({unit})": length(spans), "bubble (%)": 100 * bubble(spans)}
            | {f"stage {stage} ({unit})": took for stage, took in enumerate(stage_seconds(spans))}
            for name, spans in timelines.items()
        ]
    )


def pipelines() -> Panel:
    """A panel over stages, micro-batches, the last stage and the way between stages; any other stage takes a tick."""
    controls = {
        "stages": slider(1, 2, 3, 4, 6, 8, value=4),
        "micro_batches": slider(1, 2, 3, 4, 6, 8, 12, 16, value=4, label="micro-batches"),
        "last": slider(1.0, 1.25, 1.5, 2.0, 3.0, value=1.0, label="the last stage takes"),
        "hop": slider(0.0, 0.02, 0.1, 0.25, 0.5, value=0.0, label="a hop takes"),
    }
    return Panel.of(look, name="pipelines", **controls)


def look(stages: int, micro_batches: int, last: float, hop: float) -> View:
    """STEPS steps under both schedules, with the sentence and the numbers."""
    seconds = [1.0] * (stages - 1) + [last]
    timelines = {name: simulate(make(stages, micro_batches), seconds, STEPS, hop) for name, make in SCHEDULES.items()}
    subtitle = f"{STEPS} steps of {micro_batches} micro-batches, a row a stage; computed from the schedules alone"
    figure = draw(timelines, "Who works when", subtitle, unit=TICK)
    formula = (
        f" By the formula (p - 1) / (m + p - 1) it is {bubble_fraction(stages, micro_batches):.0%} when filled and "
    )
    return View(figure, f"{conclusion(timelines, TICK)}{formula}drained with equal stages.", table(timelines, TICK))


def _kind(span: Span) -> int:
    return span.task.micro_batch % LOOKS


def _name(kind: int) -> str:
    return "micro-batch 1" if kind == 0 else str(kind + 1)


def _bar(span: Span, begin: float) -> tuple[float, float]:
    return span.start - begin, span.seconds
