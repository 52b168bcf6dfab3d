"""Admission: what an engine refuses at the door, with the reason, before it has touched anything.

A request that could never end, because its longest answer does not fit the model or the whole cache, would hold its
place for ever or be set back for ever. So it never comes in, and whatever did come in can be served alone: that is why
waiting and preemption never deadlock.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from labllm.serving.request import Request


@dataclass(frozen=True)
class Limits:
    """Ids below vocab_size, sequences of up to max_model_len and num_slots tokens, up to max_n answers a prompt."""

    vocab_size: int
    max_model_len: int
    num_slots: int
    max_n: int


def refuse(request: Request, limits: Limits) -> None:
    """Raise ValueError, in a sentence, unless the request can be served."""
    prompt, params = request.prompt_ids, request.params
    if not prompt:
        raise ValueError("The prompt is empty: a model needs at least one token to go on from.")
    try:
        lowest, highest = min(prompt), max(prompt)
    except TypeError:
        raise ValueError("The ids of a prompt must be integers.") from None
    if lowest < 0 or highest >= limits.vocab_size:
        bad = lowest if lowest < 0 else highest
        raise ValueError(f"Token ids must lie in 0 .. {limits.vocab_size - 1}; the prompt has {bad}.")
    if request.limit > limits.max_model_len:
        raise ValueError(
            f"A prompt of {len(prompt)} tokens and max_tokens = {params.max_tokens} exceed "
            f"max_model_len = {limits.max_model_len}."
        )
    if request.limit > limits.num_slots:
        raise ValueError(
            f"A prompt of {len(prompt)} tokens and max_tokens = {params.max_tokens} exceed the whole KV cache, "
            f"which has room for {limits.num_slots} tokens: raise kv_blocks."
        )
    if params.n > limits.max_n:
        raise ValueError(f"n = {params.n} answers are wanted; this engine gives at most {limits.max_n} to a prompt.")
    for name, value in {"arrival": request.arrival, "priority": request.priority, "deadline": request.deadline}.items():
        if value is not None and not math.isfinite(value):
            raise ValueError(f"{name} must be a finite number; got {value}.")
