"""The plain solution of `kv_bytes`."""

from __future__ import annotations


def kv_bytes(
    layers: int, q_heads: int, kv_heads: int, head_dim: int, context: int, batch: int, bytes_per_element: int
) -> int:
    token_in_layer = 2 * kv_heads * head_dim  # K and V
    return token_in_layer * layers * context * batch * bytes_per_element
