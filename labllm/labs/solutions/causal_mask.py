"""The plain solution of `causal_mask`."""

from __future__ import annotations

import torch


def causal_mask(num_queries: int, num_keys: int) -> torch.Tensor:
    queries = torch.arange(num_keys - num_queries, num_keys)[:, None]  # [Tq, 1], positions in the sequence
    keys = torch.arange(num_keys)[None, :]  # [1, Tk]
    return keys <= queries
