"""Policies: who is served first, as one number a request that never changes.

    fcfs       the time of arrival
    shortest   prompt and answer at their longest: short ones first
    priority   arrival + priority * ageing: one level of priority is worth `ageing` seconds of waiting

Waiting requests come in by this order, and who must give up blocks is the last by it. A key that does not change makes
both decisions agree for good: the first of all requests is never set back, so the engine always gets on.

Ageing is in the key already: of two requests with priorities p and q the first goes before the second unless it came
more than (q - p) * ageing seconds later. So whoever waits is overtaken only by requests that arrive within
(p - lowest priority) * ageing seconds, and its wait is bounded. `shortest` gives the best mean wait and no bound: a
long request starves while short ones keep coming.
"""

from __future__ import annotations

from collections.abc import Callable

from labllm.serving.config import EngineConfig
from labllm.serving.request import Request

Policy = Callable[[Request], float]


def fcfs(request: Request) -> float:
    """First come, first served."""
    return request.arrival


def shortest(request: Request) -> float:
    """The shortest first, counted as long as it may become."""
    return request.limit


def aged_priority(ageing: float) -> Policy:
    """Smaller priorities first; `ageing` seconds of waiting outweigh one level."""

    def key(request: Request) -> float:
        return request.arrival + request.priority * ageing

    return key


def policy_of(config: EngineConfig) -> Policy:
    """The policy that a config names."""
    policies = {"fcfs": fcfs, "shortest": shortest, "priority": aged_priority(config.priority_ageing)}
    return policies[config.scheduling_policy]
