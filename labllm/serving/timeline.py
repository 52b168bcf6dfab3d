"""Timelines: what each request of a run did when, read from the engine's own log.

    waits                  from its arrival until a step takes it (again, after a preemption)
    reads its prompt       steps that bring more than one of its tokens
    writes                 steps that bring its next token
    computed for nothing   steps that still carry it after its answer has ended

Invariant: the spans of a request do not overlap, and every chunk of the log is in one of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from matplotlib.figure import Figure

from labllm.serving.replay import Run
from labllm.serving.request import Request
from labllm.ui import gantt
from labllm.ui.style import engineering, times

WAITS, READS, WRITES, WASTED = KINDS = ("waits", "reads its prompt", "writes", "computed for nothing")
Span = tuple[float, float]
Rows = list[dict[str, list[Span]]]


def rows(run: Run) -> Rows:
    """Spans (start, length) by kind, seconds from the first arrival, of each request in the order of the trace."""
    begin = min(request.arrival for request in run.requests)
    found: dict[str, list[tuple[str, float, float]]] = {r.id: [] for r in run.requests}
    ends = {r.id: r.finish if r.finish is not None else float("inf") for r in run.requests}
    for step in run.log:
        for name, _, new in step.chunks:
            kind = WASTED if step.start >= ends[name] else READS if new > 1 else WRITES
            found[name].append((kind, step.start - begin, step.end - begin))
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


def _row(request: Request, steps: Sequence[tuple[str, float, float]], begin: float) -> dict[str, list[Span]]:
    row: dict[str, list[Span]] = {kind: [] for kind in KINDS}
    last = request.arrival - begin
    for kind, start, end in _joined(steps):
        if start > last + 1e-9 and kind != WASTED:
            row[WAITS].append((last, start - last))
        row[kind].append((start, end - start))
        last = end
    return row


def _joined(steps: Iterable[tuple[str, float, float]]) -> list[tuple[str, float, float]]:
    """Steps of one kind that follow one another become one span; a decode that waits for others' prompts goes on."""
    spans: list[tuple[str, float, float]] = []
    for kind, start, end in steps:
        if spans and spans[-1][0] == kind and start <= spans[-1][2] + 1e-9:
            spans[-1] = (kind, spans[-1][1], max(end, spans[-1][2]))
        else:
            spans.append((kind, max(start, spans[-1][2]) if spans else start, end))
    return spans
