"""The plain solution of `slot_mapping`."""

from __future__ import annotations

import torch


def slot_mapping(
    block_table: torch.Tensor, seq_lens: torch.Tensor, query_lens: torch.Tensor, block_size: int
) -> torch.Tensor:
    slots = []
    for blocks, end, new in zip(block_table.tolist(), seq_lens.tolist(), query_lens.tolist(), strict=True):
        for p in range(end - new, end):
            slots.append(blocks[p // block_size] * block_size + p % block_size)
    return torch.tensor(slots, dtype=torch.int64)
