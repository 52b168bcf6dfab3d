"""The plain solution of `copy_on_write`."""

from __future__ import annotations

import torch


def copy_on_write(
    blocks: list[int], num_tokens: int, ref_counts: list[int], free_blocks: list[int], cache: torch.Tensor
) -> None:
    has_room = num_tokens % cache.shape[1] != 0
    if has_room and ref_counts[blocks[-1]] > 1:
        old, new = blocks[-1], free_blocks.pop(0)
        cache[new] = cache[old]
        ref_counts[old] -= 1
        ref_counts[new] = 1
        blocks[-1] = new
