"""What block_size costs and saves, counted exactly: empty slots of last blocks, and bytes of the block table.

A sequence of L tokens takes ceil(L / block_size) blocks and leaves at most block_size - 1 slots empty; over many
lengths that is (block_size - 1) / 2 each in the mean. Small blocks waste less and make the table longer, by 4 bytes a
block and row of the widest; both are small beside a reservation, so block_size is chosen by other things: how coarse
the sharing of beginnings may be, and how fast a kernel reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from labllm.cache.table import BlockTable

ENTRY = 4  # bytes of one int32 of the table


@dataclass(frozen=True)
class Footprint:
    """Slots and bytes that a set of sequences takes.

    tokens       of all sequences, each counted for itself
    used         slots that hold a token, shared ones counted once
    reserved     slots of the blocks that they hold
    table_bytes  of block_table [B, max_blocks] int32
    """

    tokens: int
    used: int
    reserved: int
    table_bytes: int

    @property
    def wasted(self) -> int:
        """Slots reserved and empty."""
        return self.reserved - self.used

    @property
    def waste(self) -> float:
        """The wasted part of the reserved slots, 0 to 1."""
        return self.wasted / self.reserved if self.reserved else 0.0

    @property
    def saved(self) -> int:
        """Slots that sharing saves."""
        return self.tokens - self.used


def footprint(tables: Iterable[BlockTable]) -> Footprint:
    """Of real tables, which may share blocks."""
    tables = list(tables)
    filled: dict[tuple[int, int], int] = {}  # tokens in each block of each pool
    reserved = {(id(t.pool), block): t.pool.block_size for t in tables for block in t.blocks}
    for table in tables:
        size = table.pool.block_size
        for index, block in enumerate(table.blocks):
            filled[id(table.pool), block] = min(size, table.num_tokens - index * size)
    tokens = sum(table.num_tokens for table in tables)
    widest = max((len(table.blocks) for table in tables), default=0)
    return Footprint(tokens, sum(filled.values()), sum(reserved.values()), ENTRY * len(tables) * widest)


def paged_footprint(lengths: Sequence[int], block_size: int) -> Footprint:
    """Of sequences of these lengths in blocks of this size, without sharing.

    Raises ValueError for a negative length, or a block_size that is not positive.
    """
    if block_size < 1 or min(lengths, default=0) < 0:
        raise ValueError(f"Lengths must be at least 0 and block_size at least 1; got {list(lengths)} and {block_size}.")
    blocks = [-(-length // block_size) for length in lengths]
    tokens = sum(lengths)
    return Footprint(tokens, tokens, sum(blocks) * block_size, ENTRY * len(blocks) * max(blocks, default=0))
