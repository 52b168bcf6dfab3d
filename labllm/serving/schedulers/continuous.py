"""Continuous batching: requests come and go at every step, so no seat waits for another one's answer.

A step decodes one token of every running request and reads the whole prompts of those that come in. Where a decode
needs a block and none is free, the last running request gives up its seat and blocks and is read again later: cheaper
than keeping its keys and values elsewhere as long as reading is fast (preemption by recompute). Yu et al., "Orca",
OSDI 2022; Kwon et al., SOSP 2023, section 4.5.

Cost: a few Python operations a request and step, tables grow once a block. Invariant: as `BaseScheduler`; a request
whose last token is in flight takes no further one. It loses where a long prompt comes: every answer waits for it.
"""

from __future__ import annotations

from labllm.serving.request import Request
from labllm.serving.scheduler import ScheduledStep
from labllm.serving.schedulers.base import BaseScheduler
from labllm.serving.schedulers.plan import Plan


class ContinuousScheduler(BaseScheduler):
    """Whole prompts beside the decodes."""

    def schedule(self) -> ScheduledStep:
        """Decode what runs, then admit what fits; nobody is admitted in a step that sets somebody back."""
        plan = Plan(self.config.max_num_batched_tokens)
        self._decode(plan)
        if not plan.preempted:
            self._admit(plan)
        return plan.step()

    def _decode(self, plan: Plan) -> None:
        """One token for every running request that has read all but its last, the best first."""
        size, turn = self.pool.block_size, 0
        running, decodes, contexts = self.running, plan.decodes, plan.contexts
        while turn < len(running):
            request = running[turn]
            turn += 1
            table = request.table
            computed = table.num_tokens
            if request.num_tokens - computed != 1 or request.num_tokens == request.limit:
                continue
            if computed % size:
                table.num_tokens = computed + 1  # there is room in its last block, which is its own
            elif not self._grow(request, plan):
                continue
            decodes.append(request)
            contexts.append(computed)
            request.num_tokens += 1

    def _grow(self, request: Request, plan: Plan) -> bool:
        """A block for one more token, from the last that run if none is free; False where the request is the last."""
        while not self.pool.num_free:
            victim = self.running[-1]
            self.preempt(victim)
            plan.preempted.append(victim)
            if victim is request:
                return False
        request.table.grow(1)
        plan.grown.append(request)
        return True

    def _admit(self, plan: Plan) -> None:
        """Requests take seats in the order of the line, until one finds no seat, no blocks or no tokens left."""
        while self._seats and plan.left > 0 and (request := self.line.first()) is not None:
            if request.num_known < request.num_tokens:
                return  # it was set back while a step in flight samples its last token
            hits = self.reuse.hits(request)
            num_cached = len(hits) * self.pool.block_size
            num_new = self._portion(request.num_tokens - num_cached, plan.left)
            needed = self.pool.blocks_for(request.num_tokens) - len(hits)
            if not num_new or needed + (self._kept if self.running else 0) > self.reuse.free_after(hits):
                return
            self._seat(request)
            self.reuse.adopt(request, hits)
            request.num_cached = num_cached
            request.table.grow(num_new)
            plan.seated.append(request)
            self._read(request, num_new, plan)

    def _portion(self, tokens: int, left: int) -> int:
        """How many of a request's unread tokens this step takes: all or none."""
        return tokens if tokens <= left else 0

    def _read(self, request: Request, num_new: int, plan: Plan) -> None:
        plan.read(request, num_new)
        self.reuse.remember(request)
