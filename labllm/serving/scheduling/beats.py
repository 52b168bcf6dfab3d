"""When each token came: a row a request, a mark a token, and a bar while a prompt is read.

An answer that flows is a dense row; one that stands still has a hole, and the hole stands under somebody's bar.
"""

from __future__ import annotations

from collections.abc import Mapping

from labllm.serving import timeline
from labllm.serving.replay import Run
from labllm.serving.scheduling.felt import longest_gaps, quantile
from labllm.ui import gantt
from labllm.ui.picture import Picture, show
from labllm.ui.style import engineering

TOKEN, MARK = "a token", 0.0022  # the width of a mark, as a share of the whole


def rows(run: Run, wide: float) -> list[gantt.Row]:
    """Spans (start, length) by kind, seconds from the first arrival: waiting, reading, and `wide` seconds a token."""
    begin = min(request.arrival for request in run.requests)
    return [
        {kind: row[kind] for kind in (timeline.WAITS, timeline.READS)}
        | {TOKEN: [(at - begin - wide, wide) for at in request.token_times]}
        for request, row in zip(run.requests, timeline.rows(run), strict=True)
    ]


def beats(runs: Mapping[str, Run], title: str, subtitle: str = "") -> Picture:
    """All runs on one time axis. Raises ValueError without a run."""
    if not runs:
        raise ValueError("A picture of tokens needs at least one run.")
    wide = MARK * max(run.seconds for run in runs.values())
    groups = {name: rows(run, wide) for name, run in runs.items()}
    return show(gantt.chart(groups, title, subtitle, thin=(timeline.WAITS,)), conclusion(runs))


def conclusion(runs: Mapping[str, Run]) -> str:
    """The longest gap of the median answer in each run."""
    parts = [f"{engineering(quantile(longest_gaps(run), 0.5), 's')} ({name})" for name, run in runs.items()]
    return f"Longest gap of an answer, in the median: {', '.join(parts)}."
