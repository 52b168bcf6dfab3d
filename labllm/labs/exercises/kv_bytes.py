"""Lab 02: how much memory the keys and values of a batch take.

Teaches the formula that decides how many sequences fit on a GPU, and what grouped-query attention does to it.
"""

from __future__ import annotations

import torch

from labllm.cache import contiguous
from labllm.labs.exercise import Case, Exercise, Mistake


def reference(
    layers: int, q_heads: int, kv_heads: int, head_dim: int, context: int, batch: int, bytes_per_element: int
) -> int:
    """Bytes of K and V in all layers, for `batch` sequences of `context` tokens."""
    return bytes_per_element * contiguous.kv_bytes(layers, kv_heads, head_dim, context * batch, torch.uint8)


def _all_heads(layers: int, hq: int, hkv: int, d: int, context: int, batch: int, e: int) -> int:
    return reference(layers, hq, hq, d, context, batch, e)


def _keys_only(layers: int, hq: int, hkv: int, d: int, context: int, batch: int, e: int) -> int:
    return reference(layers, hq, hkv, d, context, batch, e) // 2


def _one_layer(layers: int, hq: int, hkv: int, d: int, context: int, batch: int, e: int) -> int:
    return reference(1, hq, hkv, d, context, batch, e)


def _one_sequence(layers: int, hq: int, hkv: int, d: int, context: int, batch: int, e: int) -> int:
    return reference(layers, hq, hkv, d, context, 1, e)


def _elements(layers: int, hq: int, hkv: int, d: int, context: int, batch: int, e: int) -> int:
    return reference(layers, hq, hkv, d, context, batch, 1)


def _one_token(layers: int, hq: int, hkv: int, d: int, context: int, batch: int, e: int) -> int:
    return reference(layers, hq, hkv, d, 1, batch, e)


def _one_head(layers: int, hq: int, hkv: int, d: int, context: int, batch: int, e: int) -> int:
    return reference(layers, hq, 1, d, context, batch, e)


EXERCISE = Exercise(
    name="kv_bytes",
    lab=2,
    title="Bytes that the KV cache of a batch takes.",
    signature="""kv_bytes(
    layers: int, q_heads: int, kv_heads: int, head_dim: int, context: int, batch: int, bytes_per_element: int
) -> int""",
    shapes="""
Each layer keeps k, v [batch, kv_heads, context, head_dim] with bytes_per_element
returns a number of bytes""",
    formula="the elements of K and of V in every layer, times their size",
    reference=reference,
    library="labllm.cache.contiguous.kv_bytes",
    cases=(
        Case("Llama 3.1 8B, one sequence of 8192", lambda g: (32, 32, 8, 128, 8192, 1, 2)),
        Case("Llama 3.1 70B, 64 sequences of 4096", lambda g: (80, 64, 8, 128, 4096, 64, 2)),
        Case("Llama 2 7B, as many KV heads as query heads", lambda g: (32, 32, 32, 128, 4096, 4, 2)),
        Case("an 8-bit cache", lambda g: (28, 28, 4, 128, 1000, 3, 1)),
        Case("one token in float32", lambda g: (8, 4, 2, 64, 1, 1, 4)),
    ),
    hints=(
        "Start with one token in one layer: how many numbers are its key and its value together?",
        "Query heads are not stored. Several of them share one KV head.",
        "Multiply on: all layers, all tokens of the context, all sequences, and at last the bytes an element.",
    ),
    mistakes=(
        Mistake(
            "It counts the query heads; only the KV heads are stored.",
            _all_heads,
        ),
        Mistake("It counts K or V, not both.", _keys_only),
        Mistake("It counts one layer; every layer has a cache of its own.", _one_layer),
        Mistake("It counts one sequence; every sequence of the batch has its own keys and values.", _one_sequence),
        Mistake("It counts elements, not bytes: multiply by bytes_per_element.", _elements),
        Mistake("It counts one token; every token of the context is kept.", _one_token),
        Mistake("It counts one KV head: kv_heads is missing.", _one_head),
    ),
)
