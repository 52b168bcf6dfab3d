"""Replay: a trace meets an engine, request by request as they arrive, until all have ended.

The loop asks the engine's clock and nothing else, so the same loop plays against a model in real seconds and against a
simulation in virtual ones. Answers are greedy and as long as the trace says, end-of-text or not: two engines then do
the same work, and their ids can be compared. Invariant: requests enter in the order of arrival and never before it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from labllm.serving.engine import Engine
from labllm.serving.log import StepRecord
from labllm.serving.metrics import RunMetrics
from labllm.serving.output import Output
from labllm.serving.params import SamplingParams
from labllm.serving.request import Request
from labllm.serving.traces import Source, TracedRequest


@dataclass(frozen=True)
class Run:
    """What became of a trace: requests in its order, a record a step, and the engine's seats and blocks."""

    requests: Sequence[Request]
    log: Sequence[StepRecord]
    max_num_seqs: int
    num_blocks: int

    @property
    def ids(self) -> list[list[int]]:
        """The answers, in the trace's order."""
        return [request.output.token_ids for request in self.requests]

    @property
    def seconds(self) -> float:
        """From the first arrival to the last end."""
        return max(r.finish or r.arrival for r in self.requests) - min(r.arrival for r in self.requests)

    @cached_property
    def metrics(self) -> RunMetrics:
        """Latencies, throughput and shares. Raises ValueError where nothing was answered."""
        return RunMetrics.of(self.requests, self.log, self.max_num_seqs, self.num_blocks)


def requests_of(trace: Iterable[TracedRequest], source: Source) -> list[Request]:
    """The requests of a trace: greedy, exactly max_tokens long, numbered from '0'."""
    params: dict[int, SamplingParams] = {}
    made = []
    for number, traced in enumerate(trace):
        wanted = params.setdefault(
            traced.max_tokens, SamplingParams(max_tokens=traced.max_tokens, temperature=0, ignore_eos=True)
        )
        about = {"arrival": traced.arrival, "priority": traced.priority}
        made.append(Request(str(number), traced.prompt_ids(source), wanted, Output(wanted), **about))
    return made


def replay(engine: Engine, requests: Sequence[Request]) -> None:
    """Serve `requests`; their arrivals count from now on, and become times of the engine's clock.

    Raises ValueError where a request can never be served.
    """
    clock = engine.clock
    begin = clock.now()
    for request in requests:
        request.arrival += begin
    coming = deque(sorted(requests, key=lambda request: request.arrival))
    while coming or engine.has_unfinished:
        now = clock.now()
        while coming and coming[0].arrival <= now:
            engine.add(coming.popleft())
        if engine.has_unfinished:
            engine.step()
        else:
            clock.sleep(coming[0].arrival - now)
