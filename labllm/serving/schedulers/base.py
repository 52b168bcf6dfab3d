"""What all schedulers have in common: the line, the seats, the pool, and how a request gets or loses its place.

A seat is a row in the tables of executor and sampler, 0 .. max_num_seqs - 1: while a request runs, what belongs to it
stays in that row, and a step names rows. Running requests are kept in the order of the policy, the best first, so
whoever must give up its blocks is the last.

Admission keeps a hundredth of all blocks free for the growth of those that run: without it a full pool admits and sets
back the same request again and again. Invariant: the best of all requests, running or waiting, is never set back.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import insort

from labllm.cache.pool import BlockPool
from labllm.cache.table import BlockTable
from labllm.serving.config import EngineConfig
from labllm.serving.policies import policy_of
from labllm.serving.request import Request
from labllm.serving.scheduler import ScheduledStep
from labllm.serving.schedulers.line import Line
from labllm.serving.schedulers.prefix import reuse_of

WATERMARK = 0.01


class BaseScheduler(ABC):
    """Line, seats and blocks; `config` as `EngineConfig.for_model` fills it in."""

    def __init__(self, config: EngineConfig, pool: BlockPool) -> None:
        self.config, self.pool, self.reuse = config, pool, reuse_of(pool)
        self.line = Line(policy_of(config))
        self.running: list[Request] = []
        self._seats = list(reversed(range(config.max_num_seqs)))
        self._kept = int(WATERMARK * pool.num_blocks)

    @property
    def num_waiting(self) -> int:
        """Requests without a seat."""
        return len(self.line)

    def add(self, request: Request) -> None:
        """Take a request in; it waits."""
        request.table = BlockTable(self.pool)
        self.line.enter(request)

    @abstractmethod
    def schedule(self) -> ScheduledStep:
        """Plan the next step."""

    def finish(self, request: Request) -> None:
        """`request` has ended: its seat and blocks may serve others."""
        waited = request.seat is None
        if not waited:
            self._vacate(request)
        self.line.end(request, waited)

    def remember(self, request: Request) -> None:
        """Full blocks of the request may be found by others that begin alike, as far as their ids are known."""
        self.reuse.remember(request)

    def forget(self) -> None:
        """A step failed: what was remembered cannot be trusted, and nobody finds it any more."""
        self.reuse.forget()

    def _seat(self, request: Request) -> None:
        """The first in line takes a seat."""
        self.line.leave()
        request.seat = self._seats.pop()
        insort(self.running, request, key=self.line.rank)

    def _vacate(self, request: Request) -> None:
        self.running.remove(request)
        self._seats.append(request.seat)
        request.seat = None
        request.table.free()

    def preempt(self, request: Request) -> None:
        """Preemption: give up seat and blocks, and be read again later with all tokens so far."""
        self._vacate(request)
        request.preemptions += 1
        self.line.come_back(request)
