"""Engine: the loop that serves. One step is

    schedule -> run (prepare, model, sample) -> read the ids -> update

With an executor of lookahead 1 the ids are those of the step before: while a step computes, the next one is already
scheduled and started. The engine knows no device and no time of its own; it runs in one thread, and everything that
may happen to a request, an abort, a deadline, a failing step, happens between two steps.

Invariant: after every step the pool's blocks are accounted for by the tables of running requests, and a request that
was refused, aborted or failed has changed nothing for the others.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from labllm.cache.pool import BlockPool
from labllm.cache.prefix import PrefixPool
from labllm.serving.admission import Limits, refuse
from labllm.serving.clock import Clock, MonotonicClock
from labllm.serving.config import EngineConfig
from labllm.serving.executor import Executor, Pending
from labllm.serving.log import Scheduled, StepRecord
from labllm.serving.output import FinishReason
from labllm.serving.request import Request
from labllm.serving.scheduler import ScheduledStep, Scheduler
from labllm.serving.schedulers import scheduler_of
from labllm.serving.update import update


class Flight(NamedTuple):
    """A step that was started and not yet read."""

    step: ScheduledStep
    pending: Pending
    scheduled: Scheduled


class Engine:
    """Serves requests; `log`, where one is given, gets a `StepRecord` a step."""

    def __init__(
        self,
        executor: Executor,
        scheduler: Scheduler,
        pool: BlockPool,
        clock: Clock,
        limits: Limits,
        log: list[StepRecord] | None = None,
    ) -> None:
        self.executor, self.scheduler, self.pool, self.clock = executor, scheduler, pool, clock
        self.limits, self.log = limits, log
        self.requests: dict[str, Request] = {}  # unfinished ones
        self._flights: deque[Flight] = deque()
        self._deadlines: list[tuple[float, int, Request]] = []
        self._added = 0
        self._changed: list[Request] = []

    @classmethod
    def of(
        cls,
        executor: Executor,
        config: EngineConfig,
        num_blocks: int,
        vocab_size: int,
        clock: Clock | None = None,
        log: list[StepRecord] | None = None,
    ) -> Engine:
        """The engine that `config` (as `EngineConfig.for_model` fills it in) describes, over num_blocks blocks."""
        pool = (PrefixPool if config.enable_prefix_caching else BlockPool)(num_blocks, config.block_size)
        limits = Limits(vocab_size, config.max_model_len, num_blocks * config.block_size, config.max_num_seqs)
        return cls(executor, scheduler_of(config, pool), pool, clock or MonotonicClock(), limits, log)

    @property
    def has_unfinished(self) -> bool:
        """True while a step has something to do."""
        return bool(self.requests or self._flights or self._changed)

    def add(self, request: Request) -> None:
        """Take a request in. Raises ValueError, and changes nothing, where it can never be served."""
        refuse(request, self.limits)
        if request.id in self.requests:
            raise ValueError(f"A request {request.id!r} is being served already; ids must differ.")
        self.requests[request.id] = request
        if request.deadline is not None:
            heapq.heappush(self._deadlines, (request.deadline, self._added, request))
        self._added += 1
        self.scheduler.add(request)

    def abort(self, request_id: str) -> None:
        """Give a request up, at any moment; one that has ended or never came is none of our business."""
        if (request := self.requests.get(request_id)) is not None:
            self._end(request, "abort")

    def step(self) -> list[Request]:
        """One step; returns the requests that got a token or have ended since the last call.

        Where a step of the model raises, its requests end with reason error and the engine serves on.
        """
        self._give_up_late()
        begun = self.clock.now()
        step = self.scheduler.schedule()
        if step.num_tokens:
            self._start(step, begun)
        if self._flights and (len(self._flights) > self.executor.lookahead or not step.num_tokens):
            self._read()
        changed, self._changed = self._changed, []
        return changed

    def _start(self, step: ScheduledStep, begun: float) -> None:
        now = self.clock.now()
        for request in step.seated:
            if request.first_scheduled is None:
                request.first_scheduled = now
        running, waiting = len(self.scheduler.running), self.scheduler.num_waiting
        used = self.pool.num_blocks - self.pool.num_free
        try:
            pending = self.executor.run(step)
        except Exception as error:
            self._fail([step], error)
            return
        scheduled = Scheduled(now, running, waiting, used, now - begun, self.clock.now() - now)
        self._flights.append(Flight(step, pending, scheduled))

    def _read(self) -> None:
        """Wait for the oldest step in flight and hand its ids out."""
        step, pending, scheduled = self._flights.popleft()
        begun = self.clock.now()
        try:
            tokens = pending.wait()
        except Exception as error:
            self._fail([step, *(flight.step for flight in self._flights)], error)
            self._flights.clear()
            return
        now = self.clock.now()
        changed, ended = update(step, tokens, now, self.scheduler)
        self._changed += changed
        for request in ended:
            self._leave(request, now)
        if self.log is not None:
            update_seconds = self.clock.now() - now
            self.log.append(scheduled.ended(step, now, now - begun, update_seconds, tokens.device))

    def _fail(self, steps: Iterable[ScheduledStep], error: Exception) -> None:
        """What was computed in these steps cannot be trusted: their requests end."""
        self.scheduler.forget()
        for request in dict.fromkeys(chunk.request for step in steps for chunk in step.chunks):
            if not request.finished:
                request.error = f"{type(error).__name__}: {error}"
                self._end(request, "error")

    def _give_up_late(self) -> None:
        """End requests whose deadline has passed."""
        while self._deadlines and self._deadlines[0][0] <= self.clock.now():
            request = heapq.heappop(self._deadlines)[-1]
            if not request.finished:
                self._end(request, "deadline")

    def _end(self, request: Request, reason: FinishReason) -> None:
        request.output.finish(reason)
        self._changed.append(request)
        self._leave(request, self.clock.now())

    def _leave(self, request: Request, now: float) -> None:
        request.finish = now
        del self.requests[request.id]
        self.scheduler.finish(request)
