"""StepRecord: one line of the engine's log, from which timelines, occupancy and metrics are drawn.

A record copies what a step was and keeps no request alive. It costs a tuple a chunk, so an engine keeps a log only
where it is given a list for it.
"""

from __future__ import annotations

from typing import NamedTuple

from labllm.serving.scheduler import ScheduledStep, Scheduler


class StepRecord(NamedTuple):
    """A step from its start to the moment when its ids were read, seconds by the engine's clock.

    chunks       (request id, num_computed, num_new), decodes first
    running, waiting, used_blocks   requests and blocks after it was scheduled
    preempted    ids of requests that lost their place to it
    """

    start: float
    end: float
    chunks: tuple[tuple[str, int, int], ...]
    running: int
    waiting: int
    used_blocks: int
    preempted: tuple[str, ...] = ()


class Scheduled(NamedTuple):
    """The part of a record that is known when the step starts."""

    start: float
    running: int
    waiting: int
    used_blocks: int

    @classmethod
    def of(cls, now: float, scheduler: Scheduler, used_blocks: int) -> Scheduled:
        """As things stand after `schedule`."""
        return cls(now, len(scheduler.running), scheduler.num_waiting, used_blocks)

    def ended(self, now: float, step: ScheduledStep) -> StepRecord:
        """The whole record."""
        chunks = tuple((c.request.id, c.num_computed, c.num_new) for c in step.chunks)
        return StepRecord(self.start, now, chunks, *self[1:], tuple(r.id for r in step.preempted))
