"""Runs: a packed batch cut into pieces that one dense attention call can take.

Sequences that stand next to each other form a run when a dense `[B, Tq, ...]` view of them exists: decodes (one query
each) whatever their context, longer queries where query and context lengths agree. All decodes of a step are so one
masked call instead of a Python loop, and equal prompts need no mask at all.

Cost: one pass over host integers a step. Invariant: the runs cover every new token once, in order. It loses on batches
of many different prompt lengths: one call a sequence.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby

import torch
import torch.nn.functional as F
from torch import Tensor

from labllm.cache.step import Step


@dataclass(frozen=True)
class Run:
    """B neighbouring sequences with the same query_len; their keys are the positions first_key .. end_key.

    causal as many keys as queries, and the plain triangle between them; then there is no mask
    mask   None, or bool broadcastable to [B, 1, query_len, end_key - first_key], True where a key is seen
    empty  None, or bool [B]: rows of padding (seq_len 0), whose output is zero
    """

    sequences: slice
    tokens: slice
    query_len: int
    first_key: int
    end_key: int
    causal: bool
    mask: Tensor | None
    empty: Tensor | None


def plan(step: Step, window: int | None = None) -> list[Run]:
    """Cut a step into runs for layers with this sliding window (None: full causal attention)."""
    runs: list[Run] = []
    sequence = token = 0
    for (query_len, _), group in groupby(step.lengths, key=lambda n: (n[0], n[1] if n[0] > 1 else None)):
        seq_lens = [seq_len for _, seq_len in group]
        end_sequence, end_token = sequence + len(seq_lens), token + len(seq_lens) * query_len
        if query_len:
            runs.append(_run(step, slice(sequence, end_sequence), slice(token, end_token), query_len, seq_lens, window))
        sequence, token = end_sequence, end_token
    return runs


def _run(step: Step, sequences: slice, tokens: slice, query_len: int, seq_lens: list[int], window: int | None) -> Run:
    shortest, longest = min(seq_lens), max(seq_lens)
    end_key = max(longest, 1)  # a run of padding alone still reads one key, which it then ignores
    first_key = 0 if window is None else max(0, shortest - query_len - window + 1)
    ragged, padded, square = shortest < longest, shortest == 0, shortest == longest == query_len
    windowed = window is not None and end_key - first_key > window
    causal = square and query_len > 1 and not windowed
    mask = empty = None
    if ragged or padded or windowed or (query_len > 1 and not square):
        lens = step.seq_lens[sequences] if ragged or padded else step.seq_lens[sequences][:1]
        mask = visible(lens, query_len, torch.arange(first_key, end_key, device=lens.device), window)
    if padded:
        empty = step.seq_lens[sequences] == 0
        mask = mask | empty.view(-1, 1, 1, 1)
    return Run(sequences, tokens, query_len, first_key, end_key, causal, mask, empty)


def visible(seq_lens: Tensor, query_len: int, keys: Tensor, window: int | None) -> Tensor:
    """Bottom-right causal mask: seq_lens [B], key positions [Tk] -> bool [B, 1, query_len, Tk], True where seen."""
    queries = torch.arange(query_len, device=keys.device) - query_len + seq_lens.view(-1, 1).long()
    queries = queries.view(-1, 1, query_len, 1)
    mask = keys <= queries
    return mask if window is None else mask & (keys > queries - window)


def attend_run(run: Run, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Dense attention of one run: q [T, Hq, D] (its tokens), k and v [B, Tk, Hkv, D] (its keys) -> [T, Hq, D].

    A decode hands the query heads of one key head over as that head's queries, so grouped keys are read once and
    never repeated, whichever backend torch picks; longer queries leave grouping to the backend (`enable_gqa`).
    """
    batch, (_, q_heads, dim), kv_heads = k.shape[0], q.shape, k.shape[2]
    k, v = k.transpose(1, 2), v.transpose(1, 2)
    if run.query_len == 1:
        queries = q.view(batch, kv_heads, q_heads // kv_heads, dim)
        out = F.scaled_dot_product_attention(queries, k, v, attn_mask=run.mask)
    else:
        queries = q.view(batch, run.query_len, q_heads, dim).transpose(1, 2)
        grouped = q_heads != kv_heads
        out = F.scaled_dot_product_attention(
            queries, k, v, attn_mask=run.mask, is_causal=run.causal, enable_gqa=grouped
        )
        out = out.transpose(1, 2)
    if run.empty is not None:
        out = out.masked_fill(run.empty.view(-1, 1, 1, 1), 0)
    return out.reshape(-1, q_heads, dim)
