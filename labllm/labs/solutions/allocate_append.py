"""The plain solution of `allocate_append`."""

from __future__ import annotations


def allocate_append(blocks: list[int], num_tokens: int, num_new: int, free_blocks: list[int], block_size: int) -> None:
    needed = -(-(num_tokens + num_new) // block_size) - len(blocks)
    if needed > len(free_blocks):
        return
    for _ in range(needed):
        blocks.append(free_blocks.pop(0))
