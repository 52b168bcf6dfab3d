"""The plain solution of `gather_blocks`."""

from __future__ import annotations

import torch


def gather_blocks(cache: torch.Tensor, block_table: torch.Tensor, seq_lens: torch.Tensor) -> torch.Tensor:
    lengths, block_size = seq_lens.tolist(), cache.shape[1]
    out = cache.new_zeros(len(lengths), max(lengths), *cache.shape[2:])
    for b, n in enumerate(lengths):
        blocks = block_table[b, : -(-n // block_size)]
        out[b, :n] = cache[blocks].flatten(0, 1)[:n]
    return out
