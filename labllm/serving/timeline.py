"""Timelines: what each request of a run did when, read from the engine's own log.

    waits                  from its arrival until a step takes it (again, after a preemption)
    reads its prompt       steps that bring more than one of its tokens
    writes                 steps that bring its next token
    computed for nothing   steps that still carry it after its answer has ended

Invariant: the spans of a request do not overlap, and every chunk of the log is in one of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from matplotlib.figure import Figure

from labllm.serving.replay import Run
from labllm.serving.request import Request
from labllm.ui import gantt
from labllm.ui.style import engineering, times

WAITS, READS, WRITES, WASTED = KINDS = ("waits", "reads its prompt", "writes", "computed for nothing")
Span = tuple[float, float]


class Part(NamedTuple):
    """A request in steps number first to last of the log, and their seconds."""

    kind: str
    first: int
    last: int
    start: float
    end: float


Rows = list[dict[str, list[Span]]]


def rows(run: Run) -> Rows:
    """Spans (start, length) by kind, seconds from the first arrival, of each request in the order of the trace."""
    begin = min(request.arrival for request in run.requests)
    found: dict[str, list[Part]] = {r.id: [] for r in run.requests}
    ends = {r.id: r.finish if r.finish is not None else float("inf") for r in run.requests}
    for number, step in enumerate(run.log):
        for name, _, new in step.chunks:
            kind = WASTED if step.start >= ends[name] else READS if new > 1 else WRITES
            found[name].append(Part(kind, number, number, step.start - begin, step.end - begin))
    return [_row(request, found[request.id], begin) for request in run.requests]


def draw(runs: Mapping[str, Run], title: str, subtitle: str = "", *, caption: str = "", most: int = 64) -> Figure:
    """The first `most` requests of each run, a row each, on one time axis."""
    groups = {name: rows(run)[:most] for name, run in runs.items()}
    return gantt.chart(groups, title, subtitle, thin=(WAITS,), caption=caption)


def conclusion(runs: Mapping[str, Run]) -> str:
    """How long each run took and what share of its decode rows was wanted; the last against the first."""
    parts = [f"{name} takes {engineering(run.seconds, 's')} ({useful(run):.0%} of its decode rows are wanted)"
             for name, run in runs.items()]  # fmt: skip
    (first, slow), (last, fast) = next(iter(runs.items())), list(runs.items())[-1]
    gain = f"; {last} is {times(slow.seconds / fast.seconds)} as fast as {first}" if len(runs) > 1 else ""
    return f"{', '.join(parts)}{gain}.".capitalize()


def useful(run: Run) -> float:
    """Of all rows of decode steps, the share whose request still wanted its token."""
    ends = {r.id: r.finish if r.finish is not None else float("inf") for r in run.requests}
    wanted = [step.start < ends[name] for step in run.log for name, _, new in step.chunks if new == 1]
    return sum(wanted) / max(1, len(wanted))


def _row(request: Request, parts: Iterable[Part], begin: float) -> dict[str, list[Span]]:
    row: dict[str, list[Span]] = {kind: [] for kind in KINDS}
    last, seen = request.arrival - begin, -1
    for part in _joined(parts):
        if part.start > last and (seen < 0 or part.first > seen + 1):
            row[WAITS].append((last, part.start - last))
        row[part.kind].append((part.start, part.end - part.start))
        last, seen = part.end, part.last
    return row


def _joined(parts: Iterable[Part]) -> list[Part]:
    """Parts of one kind in steps that follow one another become one; where steps overlap, the later begins later."""
    joined: list[Part] = []
    for part in parts:
        before = joined[-1] if joined else None
        if before and before.kind == part.kind and part.first == before.last + 1:
            joined[-1] = before._replace(last=part.last, end=part.end)
        elif before and part.first == before.last + 1:
            joined.append(part._replace(start=before.end))
        else:
            joined.append(part)
    return joined
