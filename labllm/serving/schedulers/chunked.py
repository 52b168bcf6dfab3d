"""Chunked prefill: a prompt is read in pieces, as many tokens a step as the decodes leave of the budget.

The budget max_num_batched_tokens becomes the knob between two waits. Small: every decode comes soon (TPOT) and a prompt
takes many steps (TTFT). Large: the other way round. Decodes go first, so an answer that runs is never held up by more
than one budget's worth of reading. Agrawal et al., "Sarathi-Serve", OSDI 2024.

Cost: each piece reads the keys of all before it again, and small pieces use a GPU badly. Invariant: as
`ContinuousScheduler`; of the requests that still read, the best gets on whenever no decode does.
"""

from __future__ import annotations

from labllm.serving.request import Request
from labllm.serving.scheduler import ScheduledStep
from labllm.serving.schedulers.continuous import ContinuousScheduler
from labllm.serving.schedulers.plan import Plan


class ChunkedScheduler(ContinuousScheduler):
    """Pieces of prompts beside the decodes."""

    def schedule(self) -> ScheduledStep:
        """Decode what runs, read on in prompts that were cut, then admit."""
        plan = Plan(self.config.max_num_batched_tokens)
        self._decode(plan)
        self._read_on(plan)
        if not plan.preempted:
            self._admit(plan)
        return plan.step()

    def _read_on(self, plan: Plan) -> None:
        """The next pieces, the best first; without free blocks the last that still reads is set back for the first."""
        reading = [request for request in self.running if request.num_tokens - request.table.num_tokens > 1]
        turn = 0
        while turn < len(reading) and plan.left:
            request = reading[turn]
            tokens = min(request.num_tokens - request.table.num_tokens, plan.left, self._room(request))
            if tokens:
                request.table.grow(tokens)
                self._read(request, tokens, plan)
                turn += 1
            elif (victim := reading.pop()) is not request:
                self.preempt(victim)
                plan.preempted.append(victim)

    def _room(self, request: Request) -> int:
        """Tokens for which the request has slots or could get blocks."""
        size, table = self.pool.block_size, request.table
        return (len(table.blocks) + self.pool.num_free) * size - table.num_tokens

    def _portion(self, tokens: int, left: int) -> int:
        """How many of a request's unread tokens this step takes: as many as fit."""
        return min(tokens, left)
