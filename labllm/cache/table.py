"""BlockTable: where the tokens of one sequence lie, block by block.

Token p lies in block `blocks[p // block_size]` at offset `p % block_size`: slot = block * block_size + offset. A table
grows by one block when its last one is full, so a sequence wastes at most block_size - 1 slots.

A fork names the same blocks and copies nothing. The first of the two that writes into a last block which both name
takes a new block instead, and the content is copied there (copy-on-write); the other keeps the old one. Full blocks
are never written again, so they stay shared for good.

Cost: O(1) a token. Invariant: the table has exactly as many blocks as its tokens need, and a block that is written to
is named by this table alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from labllm.cache.pool import BlockPool, OutOfBlocks


class Append(NamedTuple):
    """Where new tokens go: a slot each, and the block copies (from, to) that must be made before they are written."""

    slots: list[int]
    copies: list[tuple[int, int]]


class BlockTable:
    """An empty sequence whose blocks come from `pool`."""

    def __init__(self, pool: BlockPool) -> None:
        self.pool = pool
        self.blocks: list[int] = []
        self.num_tokens = 0

    def append(self, num_tokens: int = 1) -> Append:
        """Make room for num_tokens further tokens.

        Raises `OutOfBlocks`, and changes nothing, where the pool has too few blocks; ValueError for less than a token.
        """
        start = self.num_tokens
        copies = self.grow(num_tokens)
        return Append(self.slots(start, self.num_tokens), copies)

    def grow(self, num_tokens: int) -> list[tuple[int, int]]:
        """As `append`, without the list of slots: the copies that must be made."""
        if num_tokens < 1:
            raise ValueError(f"Append at least one token; got {num_tokens}.")
        end = self.num_tokens + num_tokens
        copied = self._writes_shared_block()
        new = self.pool.allocate(self.pool.blocks_for(end) - len(self.blocks) + copied)
        copies = [(self.blocks.pop(), new[0])] if copied else []
        self.pool.free(source for source, _ in copies)
        self.blocks += new
        self.num_tokens = end
        return copies

    def slots(self, start: int, end: int) -> list[int]:
        """Slots of the tokens start .. end - 1. Raises ValueError for tokens that the table does not hold."""
        if not 0 <= start <= end <= self.num_tokens:
            raise ValueError(f"The table holds tokens 0 to {self.num_tokens - 1}; got {start} to {end - 1}.")
        size = self.pool.block_size
        return [self.blocks[p // size] * size + p % size for p in range(start, end)]

    def fork(self) -> BlockTable:
        """A second sequence with the same tokens so far, in the same blocks."""
        self.pool.share(self.blocks)
        child = BlockTable(self.pool)
        child.blocks, child.num_tokens = list(self.blocks), self.num_tokens
        return child

    def free(self) -> None:
        """Give all blocks back and be empty, the last block first: a beginning is likelier to be wanted again."""
        self.pool.free(reversed(self.blocks))
        self.blocks, self.num_tokens = [], 0

    def _writes_shared_block(self) -> bool:
        return self.num_tokens % self.pool.block_size != 0 and self.pool.ref_counts[self.blocks[-1]] > 1


def blocks_needed(tables: Sequence[BlockTable], num_new: Sequence[int]) -> int:
    """Free blocks that it takes to append num_new[b] tokens to tables[b], all of one pool: growth and copies, exactly.

    A last block that several tables share is copied for each of them that is appended to, but not for the last holder.
    """
    growth, shared = 0, Counter[int]()
    for table, new in zip(tables, num_new, strict=True):
        growth += table.pool.blocks_for(table.num_tokens + new) - len(table.blocks)
        if table.num_tokens % table.pool.block_size:
            shared[table.blocks[-1]] += 1
    return growth + sum(min(writers, tables[0].pool.ref_counts[block] - 1) for block, writers in shared.items())


def append_all(tables: Sequence[BlockTable], num_new: Sequence[int]) -> Append:
    """Append num_new[b] tokens to tables[b], all of one pool; slots and copies in order.

    Raises `OutOfBlocks`, and changes nothing, where the pool has too few blocks for all of them; ValueError for less
    than a token.
    """
    if min(num_new, default=1) < 1:
        raise ValueError(f"Append at least one token to each sequence; got {list(num_new)}.")
    if tables and (needed := blocks_needed(tables, num_new)) > tables[0].pool.num_free:
        raise OutOfBlocks(f"{needed} blocks are needed and {tables[0].pool.num_free} are free.")
    grown = [table.append(new) for table, new in zip(tables, num_new, strict=True)]
    return Append([s for a in grown for s in a.slots], [c for a in grown for c in a.copies])
