"""The ladder of policies: three kinds of users, one line, and four ways to say who is next.

    fcfs                first come, first served: fair, and everybody waits for the long jobs
    shortest            the least work first: the best mean wait, and no bound for the long ones
    strict priority     the urgent first, always: the others may wait for ever
    priority, ageing    the urgent first, but a second of waiting counts: nobody waits for ever

At the limit of a server the line never empties, so a request that all newcomers overtake is served when the traffic
ends: the longest wait grows with the length of the trace. That is what starvation looks like.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from labllm.bench import axis
from labllm.serving.arrivals import poisson
from labllm.serving.config import CHUNKED, EngineConfig
from labllm.serving.replay import Run
from labllm.serving.scheduling.felt import Figures, of
from labllm.serving.scheduling.virtual import fleet, virtual_ladder
from labllm.serving.traces import Trace, TracedRequest

NEVER = 1e9  # seconds of waiting that outweigh one level of priority, where none should
KINDS = ("chat", "agent", "job")
SHARES, PROMPTS, ANSWERS, PRIORITIES = (0.6, 0.35, 0.05), (64, 512, 128), (32, 32, 128), (0, 1, 3)


@dataclass(frozen=True)
class Public:
    """`requests` at `rate`: chats, agents with long prompts (a third), jobs with long answers (one in twenty)."""

    requests: int = axis(256, 64, 128, 256, 512, 1024, unit="requests", label="requests")
    rate: int = axis(72, 16, 32, 48, 56, 64, 72, 80, unit="requests/s", label="arrivals")
    ageing: float = axis(0.5, 0.25, 0.5, 1.0, 2.0, unit="s", label="waiting worth one level")
    max_num_seqs: int = axis(8, 4, 8, 16, unit="seats", label="max_num_seqs")
    fleet: str = fleet()


def public(w: Public, seed: int = 0) -> Trace:
    """Its trace: kinds drawn at random, arrivals Poisson."""
    generator = np.random.default_rng(seed)
    arrivals = poisson(w.rate)(generator, w.requests).tolist()
    kinds = generator.choice(len(KINDS), w.requests, p=SHARES).tolist()
    return [
        TracedRequest(
            arrival=at, prompt=((f"{seed}/{i}", PROMPTS[kind]),), max_tokens=ANSWERS[kind], priority=PRIORITIES[kind]
        )
        for i, (at, kind) in enumerate(zip(arrivals, kinds, strict=True))
    ]


def _sized(w: Public, policy: str, ageing: float) -> EngineConfig:
    options = {"scheduling_policy": policy, "priority_ageing": ageing, "max_num_batched_tokens": 1024}
    return CHUNKED.but(max_num_seqs=w.max_num_seqs, **options)


def figures(w: Public, run: Run) -> Figures:
    """The median TTFT of each kind, and the longest that anybody waited for a seat."""
    found = {f"TTFT of {k}s": (of(run, "ttft", 0.5, lambda r, n=n: r.num_prompt == n), "s") for k, n in _kinds(run)}
    return found | {"longest wait": (max(r.queue for r in run.metrics.requests), "s")}


def _kinds(run: Run) -> list[tuple[str, int]]:
    there = {request.num_prompt for request in run.requests}
    return [(kind, tokens) for kind, tokens in zip(KINDS, PROMPTS, strict=True) if tokens in there]


LINES = virtual_ladder(
    name="policies",
    title="Who is next?",
    workload=Public,
    trace_of=public,
    rungs={
        "fcfs": ("first come, first served", lambda w: _sized(w, "fcfs", 10.0)),
        "shortest": ("the least work first", lambda w: _sized(w, "shortest", 10.0)),
        "strict priority": ("the urgent first, always", lambda w: _sized(w, "priority", NEVER)),
        "priority, ageing": ("and waiting counts", lambda w: _sized(w, "priority", w.ageing)),
    },
    sizes={
        "fast": tuple(Public(requests) for requests in (64, 128)),
        "small": tuple(Public(requests) for requests in (64, 128, 256, 512)),
        "full": tuple(Public(requests) for requests in (64, 128, 256, 512, 1024)),
    },
    figures=figures,
)
