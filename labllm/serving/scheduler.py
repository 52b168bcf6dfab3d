"""What a scheduler decides, and the interface that all schedulers share.

A scheduler knows counts and never ids: how many tokens each request has, how many are read, how many blocks are free.
So it can plan a step while the one before still computes, and the same code drives a model and a simulation.

    schedule() -> ScheduledStep     admit, grow, preempt; tables and counts are as after the step when it returns

Invariants: a scheduled request has blocks for all its tokens of the step; no seat and no block has two owners; while
a request is unfinished and nothing is in flight, a step is never empty.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from labllm.cache.pool import BlockPool
from labllm.serving.request import Request


class Chunk(NamedTuple):
    """num_new tokens of a request behind num_computed ones; `samples` where the next token is asked for."""

    request: Request
    num_computed: int
    num_new: int
    samples: bool


@dataclass(frozen=True, slots=True)
class ScheduledStep:
    """One pass of the model: decodes, which bring one token each and sample, then reads.

    decodes, contexts  requests, and how many tokens of each were computed before; two lists, for there are many
    reads              longer chunks, and such as do not sample
    num_tokens         of all
    seated             requests that took a seat in this step: they are new, or come back after a preemption
    grown              requests whose table names other blocks than before
    preempted          requests that lost seat and blocks to others; none of them computes in this step
    """

    decodes: Sequence[Request] = ()
    contexts: Sequence[int] = ()
    reads: Sequence[Chunk] = ()
    num_tokens: int = 0
    seated: Sequence[Request] = ()
    grown: Sequence[Request] = ()
    preempted: Sequence[Request] = ()

    @property
    def sampling(self) -> list[Request]:
        """The requests that get a token, in the order in which an executor gives their ids."""
        return [*self.decodes, *(chunk.request for chunk in self.reads if chunk.samples)]

    @property
    def chunks(self) -> list[Chunk]:
        """All as chunks, the decodes first."""
        decodes = zip(self.decodes, self.contexts, strict=True)
        return [*(Chunk(request, context, 1, True) for request, context in decodes), *self.reads]


class Scheduler(Protocol):
    """Decides which requests run. `running` hold a seat, the best first; `num_waiting` others want one."""

    pool: BlockPool
    running: list[Request]

    @property
    def num_waiting(self) -> int:
        """Requests without a seat."""

    def add(self, request: Request) -> None:
        """Take a request in; it waits."""

    def schedule(self) -> ScheduledStep:
        """Plan the next step; without tokens where nothing can be computed before a step in flight is read."""

    def finish(self, request: Request) -> None:
        """`request` has ended (finish_reason says how), wherever it stood: its seat and blocks may serve others."""

    def remember(self, request: Request) -> None:
        """Full blocks of the request may be found by others that begin alike, as far as their ids are known."""

    def forget(self) -> None:
        """A step failed: what was remembered cannot be trusted, and nobody finds it any more."""
