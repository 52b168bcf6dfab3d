"""Update: the ids of a step become the next token of each request; some answers end by it.

Cost: one append a request. Invariant: ids go to the requests for which they were sampled, also where a request was set
back meanwhile; what was computed for an answer that has ended is dropped.
"""

from __future__ import annotations

from labllm.serving.executor import Tokens
from labllm.serving.request import Request
from labllm.serving.scheduler import ScheduledStep, Scheduler


def update(
    step: ScheduledStep, tokens: Tokens, now: float, scheduler: Scheduler
) -> tuple[list[Request], list[Request]]:
    """Hand the ids of `step` out -> (requests that got one, those of them that end by it).

    A full block of an answer is remembered when the id of its last token is known: that of the token just read.
    """
    changed, ended = [], []
    block_size, logprobs = scheduler.pool.block_size, tokens.logprobs
    for number, (request, token) in enumerate(zip(step.sampling, tokens.ids, strict=True)):
        output = request.output
        if output.finish_reason is not None:
            continue
        output.append(token)
        request.token_times.append(now)
        changed.append(request)
        if output.finish_reason is not None:
            ended.append(request)
        if logprobs is not None and logprobs[number] is not None:
            output.logprobs.append(logprobs[number])
    for request, context in zip(step.decodes, step.contexts, strict=True):
        if not (context + 1) % block_size:
            scheduler.remember(request)
    return changed, ended
