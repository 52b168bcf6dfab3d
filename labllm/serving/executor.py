"""Executor: whoever computes a step, or says how long it would take.

`run` starts a step and returns at once where it can; `Pending.wait` gives the sampled ids. With lookahead 1 the engine
schedules and starts a step before it has read the ids of the one before, so a GPU never waits for the host: ids stay on
the device, and the host learns them one step late. The price: an answer that ends by its content is computed one
token too far.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from labllm.serving.scheduler import ScheduledStep


class Tokens(NamedTuple):
    """Of each request of `step.sampling`: the id, and what the sampler reports as log-probabilities (or None).

    device  from when to when a GPU worked on the step, seconds by its own clock
    """

    ids: list[int]
    logprobs: Sequence[Any] | None = None
    device: tuple[float, float] | None = None


class Pending(Protocol):
    """A step that was started."""

    def wait(self) -> Tokens:
        """The sampled ids, once they are there. Raises what the model raised."""


class Executor(Protocol):
    """Runs steps, in the order in which they come. `lookahead`: steps that may be started before ids are read."""

    lookahead: int

    def run(self, step: ScheduledStep) -> Pending:
        """Start a step. Raises what the model raises."""

    def close(self) -> None:
        """Give back what it holds; nothing is run afterwards. Harmless when repeated."""
