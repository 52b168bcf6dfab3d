"""The simulated executor: it computes nothing, says which token comes next, and lets the step's time pass.

Scheduler, pool and engine run as they always do; only the model is missing. So their decisions, and what those do to
latencies, are real for a model and a GPU that are not here, and a day of traffic takes minutes. Answers are one token
over and over: nothing in a scheduler depends on what a token says, and length comes from max_tokens (ignore_eos).

Cost: a few additions a sequence and step. Invariant: the same trace takes the same seconds on every machine. It loses
what its formula leaves out: it is as good as its calibration.
"""

from __future__ import annotations

from typing import NamedTuple

from labllm.roofline import causal_pairs
from labllm.serving.clock import VirtualClock
from labllm.serving.executor import Tokens
from labllm.serving.scheduler import ScheduledStep
from labllm.serving.step_time import StepShape, StepTime

TOKEN = 1


class Simulated(NamedTuple):
    """A step that takes `seconds`, and how many tokens it samples."""

    clock: VirtualClock
    seconds: float
    sampled: int

    def wait(self) -> Tokens:
        self.clock.sleep(self.seconds)
        return Tokens([TOKEN] * self.sampled)


class SimulatedExecutor:
    """Charges `step_time` for each step on `clock`, which is the engine's."""

    lookahead = 0

    def __init__(self, step_time: StepTime, clock: VirtualClock) -> None:
        self.step_time, self.clock, self._before = step_time, clock, 0.0

    def run(self, step: ScheduledStep) -> Simulated:
        """Nothing is computed."""
        shape = shape_of(step)
        self._before = self.step_time.seconds(shape, self._before)
        return Simulated(self.clock, self._before, shape.sampled)

    def close(self) -> None:
        """It holds nothing."""


def shape_of(step: ScheduledStep) -> StepShape:
    """The sums of a scheduled step."""
    sampled = len(step.decodes)
    keys = pairs = sampled + sum(step.contexts)
    for _, computed, new, samples in step.reads:
        keys += computed + new
        pairs += causal_pairs(new, computed + new)
        sampled += samples
    return StepShape(step.num_tokens, sampled, keys, pairs)
