"""The plain solution of `prefix_blocks`."""

from __future__ import annotations


def prefix_blocks(ids: list[int], block_size: int, known: dict[int, int]) -> list[int]:
    found, name = [], 0
    for block in range((len(ids) - 1) // block_size):
        name = hash((name, *ids[block * block_size : (block + 1) * block_size]))
        if name not in known:
            break
        found.append(known[name])
    return found
