"""Attention without a cache: every step brings all tokens of every sequence again.

Generating n tokens this way costs O(n) passes over O(n) tokens, O(n^2) linear-layer work where a cache pays O(n); it
needs no memory between steps, which is why training and perplexity use it and generation does not.
Invariant: Tq == Tk in every sequence; a sequence never sees its neighbours in the packed batch.
"""

from __future__ import annotations

from torch import Tensor

from labllm.attention.runs import attend_run, plan
from labllm.cache.step import Step


def recompute(q: Tensor, k: Tensor, v: Tensor, layer: int, step: Step, window: int | None = None) -> Tensor:
    """An `Attend` over the step's own tokens: q [T, Hq, D], k, v [T, Hkv, D] -> [T, Hq, D]; differentiable.

    Raises ValueError when the step counts on cached keys.
    """
    if any(seq_len > query_len for query_len, seq_len in step.lengths):
        raise ValueError("Recompute keeps no keys, so each step must bring whole sequences: query_len == seq_len.")
    out = q.new_empty(q.shape) if len(runs := plan(step, window)) > 1 else None
    for run in runs:
        batch = run.sequences.stop - run.sequences.start
        keys, values = (x[run.tokens].unflatten(0, (batch, run.query_len))[:, run.first_key :] for x in (k, v))
        piece = attend_run(run, q[run.tokens], keys, values)
        if out is None:
            return piece
        out[run.tokens] = piece
    return out
