"""Static batching: a gang of requests is read together, decoded together, and left together.

Nobody comes in before the longest answer has ended. A row whose answer has ended is computed on: its last token is read
again at its place, and what comes out is thrown away. So a gang costs the longest answer times the batch, where useful
work is the mean answer: with max(len) / mean(len) = r, a share 1 - 1/r of the decodes is waste. The gain of letting
requests go is at most r.

Every row reserves blocks for its longest answer when the gang forms, so it never runs out. Invariant: the gang's
requests, ended or not, keep seats and blocks until all of them have ended. It does not lose where all answers are
equally long and come together.
"""

from __future__ import annotations

from labllm.cache.pool import BlockPool
from labllm.serving.config import EngineConfig
from labllm.serving.request import Request
from labllm.serving.scheduler import ScheduledStep
from labllm.serving.schedulers.base import BaseScheduler
from labllm.serving.schedulers.plan import Plan


class StaticScheduler(BaseScheduler):
    """Gangs in the order of the line. `running` holds the whole gang, ended rows included."""

    def __init__(self, config: EngineConfig, pool: BlockPool) -> None:
        super().__init__(config, pool)
        self._ended = 0  # rows of the gang

    def schedule(self) -> ScheduledStep:
        """Form a gang, read its prompts, or decode all its rows."""
        plan = Plan(self.config.max_num_batched_tokens)
        if not self.running:
            self._gather(plan)
        if unread := [r for r in self.running if not (r.table.num_tokens or r.finished)]:
            self._read_prompts(unread, plan)
        elif any(self._goes_on(request) for request in self.running):
            for request in self.running:
                self._row(request, plan)
        return plan.step()

    def finish(self, request: Request) -> None:
        """`request` has ended; when it is the last of its gang, all leave."""
        waited = request.seat is None
        self.line.end(request, waited)
        self._ended += not waited
        if self._ended == len(self.running):
            self._ended = 0
            for member in list(self.running):
                self._vacate(member)

    def _gather(self, plan: Plan) -> None:
        room = self.pool.num_free
        while self._seats and (request := self.line.first()) is not None:
            room -= self.pool.blocks_for(request.limit)
            if room < 0:
                return
            self._seat(request)
            plan.seated.append(request)

    def _read_prompts(self, unread: list[Request], plan: Plan) -> None:
        for request in unread:
            if request.num_tokens > plan.left:
                return
            request.table.grow(request.num_tokens)
            plan.read(request, request.num_tokens)

    def _goes_on(self, request: Request) -> bool:
        return not request.finished and request.num_tokens < request.limit

    def _row(self, request: Request, plan: Plan) -> None:
        """The next token of a row, or its last one again where its answer has ended."""
        computed = request.table.num_tokens
        if self._goes_on(request):
            plan.decodes.append(request)
            plan.contexts.append(computed)
            if computed % self.pool.block_size:
                request.table.num_tokens = computed + 1
            else:
                request.table.grow(1)
                plan.grown.append(request)
            request.num_tokens += 1
        elif computed:
            plan.again(request)
