"""StepRecord: one line of the engine's log, from which timelines, occupancy and metrics are drawn.

A record copies what a step was and keeps no request alive. It costs a tuple a chunk, so an engine keeps a log only
where it is given a list for it.
"""

from __future__ import annotations

from typing import NamedTuple

from labllm.serving.scheduler import ScheduledStep

Span = tuple[float, float] | None


class Spent(NamedTuple):
    """Seconds that the engine's thread spent on a step; while it waits, a device computes."""

    schedule: float = 0.0
    run: float = 0.0
    wait: float = 0.0
    update: float = 0.0


class StepRecord(NamedTuple):
    """A step from its start to the moment when its ids were read, seconds by the engine's clock.

    chunks       (request id, num_computed, num_new), decodes first
    running, waiting, used_blocks   requests and blocks after it was scheduled
    preempted    ids of requests that lost their place to it
    spent        where the engine's thread was
    device       from when to when a GPU worked on it, seconds by the GPU's own clock; None elsewhere
    """

    start: float
    end: float
    chunks: tuple[tuple[str, int, int], ...]
    running: int
    waiting: int
    used_blocks: int
    preempted: tuple[str, ...] = ()
    spent: Spent = Spent()
    device: Span = None

    @property
    def decodes(self) -> bool:
        """Whether every chunk is one token."""
        return all(new == 1 for _, _, new in self.chunks)


class Scheduled(NamedTuple):
    """The part of a record that is known when the step starts."""

    start: float
    running: int
    waiting: int
    used_blocks: int
    schedule: float
    run: float

    def ended(self, step: ScheduledStep, end: float, wait: float, update: float, device: Span) -> StepRecord:
        """The whole record."""
        chunks = tuple((c.request.id, c.num_computed, c.num_new) for c in step.chunks)
        preempted, spent = tuple(r.id for r in step.preempted), Spent(self.schedule, self.run, wait, update)
        return StepRecord(
            self.start, end, chunks, self.running, self.waiting, self.used_blocks, preempted, spent, device
        )
