"""Which tokens stay before a draw: min-p, top-k and top-p of a whole batch, from one sort.

Sorted by falling logit, each rule keeps a beginning of the row: min-p up to the last token at least min_p times as
likely as the first, top-k the first k, top-p until the probabilities of what min-p and top-k left, made to sum to one,
reach top_p. The first token always stays.

Cost: a sort of [B, V], by far the dearest part of sampling; a batch in which nobody filters skips it. Invariant: tokens
that stay keep their logits, and equal logits leave by the order of their ids, so a row's answer does not depend on the
others.
"""

from __future__ import annotations

import torch
from torch import Tensor


def keep_likely(logits: Tensor, top_k: Tensor, top_p: Tensor, min_p: Tensor) -> Tensor:
    """logits [B, V] float32 with -inf where a token goes; top_k [B] int64 (V or more: all), top_p, min_p [B] float32.

    No value is read on the host, so nothing is checked here: `SamplingParams` has done it.
    """
    falling, order = logits.sort(dim=-1, descending=True, stable=True)
    ranks = torch.arange(logits.shape[-1], device=logits.device)
    gone = (ranks >= top_k[:, None]) | (falling < falling[:, :1] + min_p.log()[:, None])
    likely = falling.masked_fill(gone, float("-inf")).softmax(dim=-1)
    before = likely.cumsum(dim=-1) - likely
    gone |= (before >= top_p[:, None]) & (top_p < 1)[:, None]
    gone[:, 0] = False
    return logits.masked_fill(torch.empty_like(gone).scatter_(-1, order, gone), float("-inf"))
