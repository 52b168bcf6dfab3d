"""The plain solution of `causal_tiles`."""

from __future__ import annotations

import math


def causal_tiles(query_tile: int, num_queries: int, num_keys: int, block_m: int, block_n: int) -> tuple[int, int]:
    prefix = num_keys - num_queries
    first = query_tile * block_m
    last = min(first + block_m, num_queries) - 1
    whole = (prefix + first + 1) // block_n
    visited = math.ceil((prefix + last + 1) / block_n)
    return whole, visited
