"""Plan: a step in the making, and what is left of its token budget.

The budget bounds how long a step takes, and with it how long every decode in it waits. Decodes have taken their part
before a prompt is read: they stand first in the step.
"""

from __future__ import annotations

from labllm.serving.request import Request
from labllm.serving.scheduler import Chunk, ScheduledStep


class Plan:
    """An empty step of at most `budget` tokens."""

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self.decodes: list[Request] = []
        self.contexts: list[int] = []
        self.reads: list[Chunk] = []
        self.read_tokens = 0
        self.seated: list[Request] = []
        self.grown: list[Request] = []
        self.preempted: list[Request] = []

    @property
    def left(self) -> int:
        """Tokens that still fit."""
        return self.budget - len(self.decodes) - self.read_tokens

    def read(self, request: Request, num_new: int) -> None:
        """The request's next num_new tokens, for which its table has grown, are read; it samples behind the last."""
        end = request.table.num_tokens
        samples = end == request.num_tokens
        self.reads.append(Chunk(request, end - num_new, num_new, samples))
        self.read_tokens += num_new
        self.grown.append(request)
        request.num_tokens += samples

    def again(self, request: Request) -> None:
        """The request's last token is computed once more and nothing comes of it."""
        self.reads.append(Chunk(request, request.table.num_tokens - 1, 1, False))
        self.read_tokens += 1

    def step(self) -> ScheduledStep:
        """The step as planned."""
        return ScheduledStep(
            self.decodes,
            self.contexts,
            self.reads,
            len(self.decodes) + self.read_tokens,
            self.seated,
            self.grown,
            self.preempted,
        )
