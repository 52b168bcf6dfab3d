"""Lab 01: what attention costs when each sequence brings one new token.

Teaches grouped-query attention's saving: FLOPs go with the query heads, traffic with the KV heads.
"""

from __future__ import annotations

from labllm import roofline
from labllm.labs.exercise import Case, Exercise, Function, Mistake

Answer = tuple[float, float]


def reference(batch: int, context: int, q_heads: int, kv_heads: int, head_dim: int, bytes_per_element: float) -> Answer:
    """(FLOPs, bytes) of one query a sequence against `context` keys and values."""
    cost = roofline.attention(batch, 1, context, q_heads, kv_heads, head_dim, bytes_per_element)
    return cost.flops, cost.bytes


def _flops(b: int, c: int, hq: int, d: int) -> float:
    return 4 * b * hq * c * d


def _bytes(b: int, c: int, hq: int, hkv: int, d: int, e: float) -> float:
    return 2 * b * d * (hq + hkv * c) * e


def _all_heads_cached(b: int, c: int, hq: int, hkv: int, d: int, e: float) -> Answer:
    return _flops(b, c, hq, d), _bytes(b, c, hq, hq, d, e)


def _few_heads_compute(b: int, c: int, hq: int, hkv: int, d: int, e: float) -> Answer:
    return _flops(b, c, hkv, d), _bytes(b, c, hq, hkv, d, e)


def _scores_only(b: int, c: int, hq: int, hkv: int, d: int, e: float) -> Answer:
    return _flops(b, c, hq, d) / 2, _bytes(b, c, hq, hkv, d, e)


def _no_values(b: int, c: int, hq: int, hkv: int, d: int, e: float) -> Answer:
    return _flops(b, c, hq, d), b * d * (2 * hq + hkv * c) * e


def _whole_square(b: int, c: int, hq: int, hkv: int, d: int, e: float) -> Answer:
    return _flops(b, c, hq, d) * c, _bytes(b, c, hq, hkv, d, e)


def _cache_only(b: int, c: int, hq: int, hkv: int, d: int, e: float) -> Answer:
    return _flops(b, c, hq, d), 2 * b * d * hkv * c * e


def _swapped(b: int, c: int, hq: int, hkv: int, d: int, e: float) -> Answer:
    return _bytes(b, c, hq, hkv, d, e), _flops(b, c, hq, d)


def _one_sequence(b: int, c: int, hq: int, hkv: int, d: int, e: float) -> Answer:
    return _flops(1, c, hq, d), _bytes(1, c, hq, hkv, d, e)


def _one_sequence_computes(b: int, c: int, hq: int, hkv: int, d: int, e: float) -> Answer:
    return _flops(1, c, hq, d), _bytes(b, c, hq, hkv, d, e)


def _one_sequence_moves(b: int, c: int, hq: int, hkv: int, d: int, e: float) -> Answer:
    return _flops(b, c, hq, d), _bytes(1, c, hq, hkv, d, e)


def _with_softmax(flops_a_score: int) -> Function:
    def counted(b: int, c: int, hq: int, hkv: int, d: int, e: float) -> Answer:
        return _flops(b, c, hq, d) + flops_a_score * b * hq * c, _bytes(b, c, hq, hkv, d, e)

    return counted


EXERCISE = Exercise(
    name="decode_attention_cost",
    lab=1,
    title="FLOPs and bytes of attention in one decode step.",
    signature="""decode_attention_cost(
    batch: int, context: int, q_heads: int, kv_heads: int, head_dim: int, bytes_per_element: float
) -> tuple[float, float]""",
    shapes="""
q and output  [batch, q_heads, 1, head_dim]
k, v          [batch, kv_heads, context, head_dim]
returns (FLOPs, bytes); the softmax itself is not counted""",
    formula="""
scores = q k^T and output = softmax(scores) v, each a sum of products (2 FLOPs a product)
bytes: q, k and v are read once, the output is written once, and nothing else moves""",
    reference=reference,
    library="labllm.roofline.attention",
    parts=("FLOPs", "bytes"),
    cases=(
        Case("32 query heads on 8 KV heads, context 4096", lambda g: (1, 4096, 32, 8, 128, 2)),
        Case("16 sequences of 1000 tokens", lambda g: (16, 1000, 32, 8, 128, 2)),
        Case("a cache of 1 byte an element", lambda g: (4, 333, 4, 2, 64, 1)),
        Case("as many KV heads as query heads", lambda g: (2, 50, 12, 12, 64, 2)),
        Case("one key only", lambda g: (3, 1, 8, 1, 64, 4)),
    ),
    hints=(
        "One query head does two things: it forms a score with each of `context` keys, then sums the weighted values.",
        "A score is a dot product of length head_dim: 2 * head_dim FLOPs. How many scores are there in the batch?",
        "Several query heads share one KV head, so K and V lie in memory, and are read, once for each KV head.",
    ),
    mistakes=(
        Mistake(
            "K and V are counted with the query heads; memory holds only the KV heads.",
            _all_heads_cached,
        ),
        Mistake(
            "The FLOPs are counted with the KV heads; every query head computes its own scores.", _few_heads_compute
        ),
        Mistake(
            "Half of the FLOPs are missing: two products (q k^T and weights v), each with 2 FLOPs a product.",
            _scores_only,
        ),
        Mistake("The values are not counted in the bytes: K and V are read both.", _no_values),
        Mistake(
            "It counts context * context scores, as in prefill; a decode step has one query a sequence.", _whole_square
        ),
        Mistake("Only the cache is counted in the bytes; q is read and the output is written as well.", _cache_only),
        Mistake("The two numbers are swapped: FLOPs come first, then bytes.", _swapped),
        Mistake("It counts one sequence: the batch is missing in the FLOPs and in the bytes.", _one_sequence),
        Mistake("The batch is missing in the FLOPs; every sequence brings a query.", _one_sequence_computes),
        Mistake("The batch is missing in the bytes; every sequence has a cache of its own.", _one_sequence_moves),
        Mistake(
            "It counts FLOPs a score beside the two products; the softmax and the scale are not counted here.",
            _with_softmax(1),
            also=tuple(_with_softmax(n) for n in range(2, 7)),
        ),
    ),
)
