"""Stopwatch: when each task of a pipeline really began and ended, all ranks on one clock.

On a CPU the monotonic clock, which all processes of a host share. A GPU is stamped by CUDA events, which know only how
long after one another they came; one event is therefore also read from the host's clock, several times, and the
tightest of these pairs ties the GPU's time to it, within some ten microseconds.

Cost: two events a task. Invariant: nothing waits for the device while the pipeline runs. It loses between hosts, whose
monotonic clocks have nothing to do with one another: there only one host's rows may be compared.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist

from labllm.parallel.schedules import Task
from labllm.parallel.timeline import Span

READINGS = 20


class Stopwatch:
    """Measures on `device` in a `with stopwatch(task):`; `spans` are those of this rank, `gathered` of all ranks."""

    def __init__(self, device: torch.device | str) -> None:
        self._gpu = torch.device(device).type == "cuda"
        self._marks: list[tuple[Task, torch.cuda.Event | float, torch.cuda.Event | float]] = []

    @contextmanager
    def __call__(self, task: Task) -> Iterator[None]:
        """Stamp the beginning and the end of what is done inside."""
        start = self._stamp()
        yield
        self._marks.append((task, start, self._stamp()))

    def spans(self) -> list[Span]:
        """The tasks so far, in seconds of the host's monotonic clock; on a GPU their end is waited for."""
        if not self._gpu:
            return [Span(task, start, end) for task, start, end in self._marks]
        seconds, origin = _origin()

        def moment(event: torch.cuda.Event) -> float:
            return seconds - event.elapsed_time(origin) / 1e3

        return [Span(task, moment(start), moment(end)) for task, start, end in self._marks]

    def _stamp(self) -> torch.cuda.Event | float:
        if not self._gpu:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event


def gathered(spans: list[Span]) -> list[Span]:
    """The spans of all ranks, every rank gets them, from the first start on; called by every rank.

    Of ranks that share a stage, a task's span is from the first one's start to the last one's end.
    """
    every = [spans]
    if dist.is_initialized():
        every = [[] for _ in range(dist.get_world_size())]
        dist.all_gather_object(every, spans)
    joined: dict[Task, Span] = {}
    for span in (span for one in every for span in one):
        other = joined.get(span.task, span)
        joined[span.task] = Span(span.task, min(span.start, other.start), max(span.end, other.end))
    begin = min((span.start for span in joined.values()), default=0.0)
    shifted = (Span(span.task, span.start - begin, span.end - begin) for span in joined.values())
    return sorted(shifted, key=lambda span: (span.start, span.task))


def _origin() -> tuple[float, torch.cuda.Event]:
    """An event and when it came by the host's clock: of several the one whose reading took least."""
    readings = []
    for _ in range(READINGS):
        event = torch.cuda.Event(enable_timing=True)
        torch.cuda.synchronize()
        before = time.perf_counter()
        event.record()
        event.synchronize()
        readings.append((time.perf_counter() - before, before, event))
    took, before, event = min(readings, key=lambda reading: reading[0])
    return before + took / 2, event
