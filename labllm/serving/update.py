"""Update: the ids of a step become the next token of each request; some answers end by it.

Cost: one append a request. Invariant: ids go to the requests for which they were sampled, also where a request was set
back meanwhile; what was computed for an answer that has ended is dropped.
"""

from __future__ import annotations

from labllm.serving.executor import Tokens
from labllm.serving.request import Request
from labllm.serving.scheduler import ScheduledStep, Scheduler


def update(step: ScheduledStep, tokens: Tokens, now: float, scheduler: Scheduler) -> list[Request]:
    """Hand the ids of `step` out; returns the requests that got one, those that end by it among them.

    A full block of an answer is remembered when the id of its last token is known: that of the token just read.
    """
    changed = []
    block_size, logprobs = scheduler.pool.block_size, tokens.logprobs
    sampled = [chunk for chunk in step.chunks if chunk.samples]
    for number, (chunk, token) in enumerate(zip(sampled, tokens.ids, strict=True)):
        request = chunk.request
        output = request.output
        if output.finish_reason is not None:
            continue
        output.append(token)
        request.token_times.append(now)
        changed.append(request)
        if logprobs is not None and logprobs[number] is not None:
            output.logprobs.append(logprobs[number])
        if not (chunk.num_computed + chunk.num_new) % block_size:
            scheduler.remember(request)
    return changed
