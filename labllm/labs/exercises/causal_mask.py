"""Lab 02: one mask that serves prefill, decode and a chunk behind a cached prefix.

Teaches bottom-right alignment: the last query sees every key, whatever the number of queries.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from labllm.attention.dense import causal_mask as reference
from labllm.bench import Rung
from labllm.labs.exercise import Case, Exercise, Function, Mistake


def _top_left(num_queries: int, num_keys: int) -> Tensor:
    return torch.ones(num_queries, num_keys, dtype=torch.bool).tril()


def _square(num_queries: int, num_keys: int) -> Tensor:
    return torch.ones(num_queries, num_queries, dtype=torch.bool).tril()


def _inverted(num_queries: int, num_keys: int) -> Tensor:
    return ~reference(num_queries, num_keys)


def _strict(num_queries: int, num_keys: int) -> Tensor:
    return torch.ones(num_queries, num_keys, dtype=torch.bool).tril(num_keys - num_queries - 1)


def _transposed(num_queries: int, num_keys: int) -> Tensor:
    return torch.ones(num_queries, num_keys, dtype=torch.bool).triu(num_keys - num_queries)


def _no_mask(num_queries: int, num_keys: int) -> Tensor:
    return torch.ones(num_queries, num_keys, dtype=torch.bool)


def _additive(num_queries: int, num_keys: int) -> Tensor:
    return torch.zeros(num_queries, num_keys).masked_fill(_inverted(num_queries, num_keys), float("-inf"))


def _one_too_far(num_queries: int, num_keys: int) -> Tensor:
    return torch.ones(num_queries, num_keys, dtype=torch.bool).tril(num_keys - num_queries + 1)


def _floats(num_queries: int, num_keys: int) -> Tensor:
    return reference(num_queries, num_keys).float()


def _integers(num_queries: int, num_keys: int) -> Tensor:
    return reference(num_queries, num_keys).long()


def as_rung(mask_of: Function) -> Rung:
    """Prefill attention under the learner's mask, for `labllm.attention.ladder.PREFILL`."""

    def run(inputs: Any) -> Tensor:
        q, k, v, _ = inputs
        mask = mask_of(q.shape[2], k.shape[2]).to(q.device)
        return scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=q.shape[1] != k.shape[1])

    return Rung(
        name="yours",
        run=run,
        about="your causal mask, made anew at every call",
        refuses=lambda workload: None if workload.mask == "causal" else "it masks, and this workload has no mask",
        sources=(mask_of,),
    )


EXERCISE = Exercise(
    name="causal_mask",
    lab=2,
    title="Which keys each query may see, with a cached prefix.",
    signature="causal_mask(num_queries: int, num_keys: int) -> torch.Tensor",
    shapes="""
num_queries  Tq: the new tokens, which are the last Tq of the sequence
num_keys     Tk >= Tq: cached tokens and new ones together
returns      [Tq, Tk] bool, True where query i may see key j""",
    formula="query i is token Tk - Tq + i of the sequence: it sees itself and every key before it",
    reference=reference,
    library="labllm.attention.dense.causal_mask",
    as_rung=as_rung,
    cases=(
        Case("prefill: 4 queries, 4 keys", lambda g: (4, 4)),
        Case("decode: 1 query, 7 keys", lambda g: (1, 7)),
        Case("a chunk of 3 behind 5 cached tokens", lambda g: (3, 8)),
        Case("the first token of all", lambda g: (1, 1)),
        Case("100 queries behind 28 cached tokens", lambda g: (100, 128)),
    ),
    hints=(
        "Draw the mask for 1 query and 7 keys: the query is the newest token. How many keys may it see?",
        "Number the tokens of the whole sequence. Which one is query i, when Tk - Tq tokens are cached before it?",
        "Compare a column of query positions [Tq, 1] with a row of key positions [1, Tk]: broadcasting makes the mask.",
    ),
    mistakes=(
        Mistake(
            "The mask is aligned top left: query i is taken for token i and misses the cached prefix.",
            _top_left,
        ),
        Mistake("The mask is square; it needs a column for every key, cached ones included.", _square),
        Mistake("The mask is inverted: True marks what a query may see.", _inverted),
        Mistake("The diagonal is missing: a token sees itself.", _strict),
        Mistake("The mask looks forward: a query sees the past, not the future (tril, not triu).", _transposed),
        Mistake("Nothing is masked; new tokens would see those that come after them.", _no_mask),
        Mistake("This is the additive form, 0 and -inf; here True and False are asked for.", _additive),
        Mistake("It is one key too far: each query sees the token that comes after it.", _one_too_far),
        Mistake("The mask is right as numbers, 0 and 1; bool is asked for (dtype=torch.bool).", _floats, (_integers,)),
    ),
)
