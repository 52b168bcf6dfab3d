"""The plain solution of `split_heads`."""

from __future__ import annotations


def split_heads(q_heads: int, kv_heads: int, ranks: int, rank: int) -> tuple[list[int], list[int]]:
    each, group = q_heads // ranks, q_heads // kv_heads
    queries = list(range(rank * each, (rank + 1) * each))
    return queries, sorted({head // group for head in queries})
