"""The plain solution of `decode_attention_cost`."""

from __future__ import annotations


def decode_attention_cost(
    batch: int, context: int, q_heads: int, kv_heads: int, head_dim: int, bytes_per_element: float
) -> tuple[float, float]:
    scores = batch * q_heads * context
    flops = 2 * (2 * scores * head_dim)  # q k^T, then weights v
    cache = 2 * batch * kv_heads * context * head_dim  # K and V
    query_and_output = 2 * batch * q_heads * head_dim
    return flops, (cache + query_and_output) * bytes_per_element
