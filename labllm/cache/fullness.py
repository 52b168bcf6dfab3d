"""How full a full cache is, step by step, under each allocator of `labllm.cache.ladder`, on one trace.

All get the same requests and as many slots. Nothing is measured: the same lengths give the same figures everywhere. A
line ends when nobody waits any more, so a shorter one has served the trace in fewer steps.
"""

from __future__ import annotations

from functools import lru_cache
from statistics import mean

import pandas as pd

from labllm.cache.ladder import ALLOCATORS, DEMAND, Line, Task
from labllm.cache.replay import Moment, shares
from labllm.cache.traces import TRACES
from labllm.ui import Panel, View, choice, course, slider
from labllm.ui.style import times

AVERAGES, BLOCK_SIZES = (64, 128, 256, 512), (1, 4, 16, 64, 256)
ABOUT = ("step of the replay", "slots that hold a token")


def fullness(max_len: int = 1024, slots: int = 16384) -> Panel:
    """A line an allocator over the steps of a replay; the table has sequences at once, waste by kind, tokens reread."""

    def look(trace: str, average: int, block_size: int) -> View:
        line = Line(average, trace, max_len, slots, block_size)
        runs = {rung.name: waited(line, rung.name) for rung in ALLOCATORS.rungs}
        courses = {name: [m.share("tokens") for m in run] for name, run in runs.items()}
        subtitle = f"{slots:,} slots, at most {max_len:,} tokens a sequence; lengths {trace}, {average} on average"
        figure = course.chart(courses, *ABOUT, "How full is a full cache?", subtitle)
        gain = batch(runs["paged"]) / batch(runs["max length"])
        told = f"Paged, {times(gain)} as many sequences run at once as with the maximum reserved."
        return View(figure, f"{course.conclusion(courses, *ABOUT)} {told}", _compared(runs))

    controls = {
        "trace": choice(*TRACES, label="lengths"),
        "average": slider(*AVERAGES, value=256, label="average length"),
        "block_size": slider(*BLOCK_SIZES, value=16, label="block size"),
    }
    return Panel.of(look, name="fullness", **controls)


@lru_cache(maxsize=64)
def waited(line: Line, allocator: str) -> tuple[Moment, ...]:
    """The moments of one replay in which somebody waits. Raises KeyError for an unknown allocator."""
    (rung,) = ALLOCATORS.only(allocator).rungs
    requests = TRACES[line.trace](DEMAND * line.slots // line.average, line.average, line.max_len, 0)
    return tuple(m for m in rung.run(Task(line, requests)).moments if m.waiting)


def batch(run: tuple[Moment, ...]) -> float:
    """Sequences that run at once, mean over the second half of the steps."""
    return mean(m.running for m in run[len(run) // 2 :])


def _compared(runs: dict[str, tuple[Moment, ...]]) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {"allocator": name, "sequences at once": batch(run), "steps": len(run)}
            | {f"{kind} (%)": 100 * share for kind, share in shares(run).items()}
            | {"tokens read again": run[-1].recomputed}
            for name, run in runs.items()
        ]
    )
