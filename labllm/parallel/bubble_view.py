"""Pipelines that are not here, as a panel: any number of stages and micro-batches, one slow stage, slow links.

Nothing is measured: `timeline.simulate` plays both schedules in ticks, a tick being what a stage takes for a
micro-batch. What a pipeline gains is told against one device that does all stages' work, micro-batch by micro-batch.
"""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from labllm.parallel import timeline_view
from labllm.parallel.schedules import SCHEDULES, Schedule
from labllm.parallel.timeline import Span, bubble, length, simulate
from labllm.ui import Panel, View, slider
from labllm.ui.style import times

DRAWN, LONG = 3, 32  # steps: of the picture, and of a run so long that its first and last hardly show
COUNTS = (1, 2, 3, 4, 6, 8, 12, 16)


def bubbles() -> Panel:
    """A Panel over stages, micro-batches, the last stage's time and the time of a message."""
    controls = {
        "stages": slider(2, 3, 4, 8, value=2),
        "micro_batches": slider(1, 2, 3, 4, 6, 8, 12, value=4, label="micro-batches"),
        "last": slider(1.0, 1.25, 1.5, 2.0, 3.0, value=1.0, label="the last stage takes (ticks)"),
        "hop": slider(0.0, 0.1, 0.25, 0.5, 1.0, value=0.0, label="a message takes (ticks)"),
    }
    return Panel.of(look, name="bubbles", **controls)


def look(stages: int, micro_batches: int, last: float, hop: float) -> View:
    """The first steps under both schedules, what is gained, and the same for other numbers of micro-batches."""
    seconds = [1.0] * (stages - 1) + [last]
    made = {name: make(stages, micro_batches) for name, make in SCHEDULES.items()}
    groups = {name: simulate(schedule, seconds, DRAWN, hop) for name, schedule in made.items()}
    subtitle = f"simulated; {DRAWN} steps of {micro_batches} micro-batches, whose numbers are in the boxes"
    figure = timeline_view.chart(groups, f"A pipeline of {stages} stages", subtitle, unit="ticks")
    return View(figure, conclusion(made, seconds, hop), table(seconds, hop))


def gain(schedule: Schedule, seconds: Sequence[float], hop: float = 0.0) -> float:
    """Times as fast as one device with the same micro-batches, over a long run."""
    return _gain(simulate(schedule, seconds, LONG, hop))


def conclusion(made: dict[str, Schedule], seconds: Sequence[float], hop: float) -> str:
    """What each schedule gains in a long run, and what unequal stages allow at most."""
    told = " and ".join(f"{times(gain(schedule, seconds, hop))} as fast with {name}" for name, schedule in made.items())
    most = sum(seconds) / max(seconds)
    even = "" if most == len(seconds) else f"; such stages allow {times(most)} at most"
    return f"In a long run {len(seconds)} stages do the work of one device {told}{even}."


def table(seconds: Sequence[float], hop: float) -> pd.DataFrame:
    """Gain and bubble over the number of micro-batches."""
    rows = []
    for count in COUNTS:
        rows.append({"micro-batches": float(count)})
        for name, make in SCHEDULES.items():
            spans = simulate(make(len(seconds), count), seconds, LONG, hop)
            rows[-1] |= {f"{name}, gain (x)": _gain(spans), f"{name}, bubble (%)": 100 * bubble(spans)}
    return pd.DataFrame(rows)


def _gain(spans: Sequence[Span]) -> float:
    return sum(span.seconds for span in spans) / length(spans)
