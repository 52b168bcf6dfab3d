"""BlockPool: which blocks of a cache are held, and by how many tables.

A block has a reference count: 1 after `allocate`, one more with each `share`, one less with each `free`; at 0 it is
free again. Free blocks wait in line: the one that has been free longest is allocated next (least recently used first),
so what a block holds survives as long as possible for somebody who may want it back.

Cost: O(1) a block. Invariant (`labllm.cache.invariants.check`): a block is either in the free line, once, or held, and
its count is the number of tables that name it. Counts instead of owners are what makes sharing cheap: a fork adds one
and copies nothing. Blocks of equal size cannot fragment; the price is the part of a last block that stays empty.
"""

from __future__ import annotations

from collections.abc import Iterable


class OutOfBlocks(RuntimeError):
    """Fewer blocks are free than were asked for: wait, or take blocks from somebody."""


class BlockPool:
    """`num_blocks` blocks of `block_size` tokens. Raises ValueError when a size is not positive."""

    def __init__(self, num_blocks: int, block_size: int) -> None:
        if min(num_blocks, block_size) < 1:
            raise ValueError(f"A pool needs at least one block of at least one slot; got {num_blocks} x {block_size}.")
        self.num_blocks, self.block_size = num_blocks, block_size
        self.ref_counts = [0] * num_blocks
        self._free = dict.fromkeys(range(num_blocks))  # a dict keeps order and gives up any of its keys at once

    @property
    def num_free(self) -> int:
        """Blocks that nobody holds."""
        return len(self._free)

    @property
    def free_blocks(self) -> list[int]:
        """The free line: the first is allocated next."""
        return list(self._free)

    def blocks_for(self, num_tokens: int) -> int:
        """Blocks that hold num_tokens tokens: ceil(num_tokens / block_size)."""
        return -(-num_tokens // self.block_size)

    def allocate(self, count: int = 1) -> list[int]:
        """Take `count` blocks, each with one reference: all of them, or none and `OutOfBlocks`."""
        if count < 0:
            raise ValueError(f"A number of blocks cannot be negative; got {count}.")
        if count > self.num_free:
            raise OutOfBlocks(f"{count} blocks are needed and {self.num_free} of {self.num_blocks} are free.")
        line = iter(self._free)
        blocks = [next(line) for _ in range(count)]
        for block in blocks:
            del self._free[block]
            self.ref_counts[block] = 1
        return blocks

    def share(self, blocks: Iterable[int]) -> None:
        """Add a reference to each block. Raises ValueError, and changes nothing, where one is not held."""
        for block in self._held(blocks):
            self.ref_counts[block] += 1

    def free(self, blocks: Iterable[int]) -> None:
        """Drop a reference to each block; the last one sends it to the end of the free line.

        Raises ValueError, and changes nothing, where a block is not held or is named twice.
        """
        for block in self._held(blocks):
            self.ref_counts[block] -= 1
            if not self.ref_counts[block]:
                self._free[block] = None

    def _held(self, blocks: Iterable[int]) -> list[int]:
        blocks = list(blocks)
        if len(set(blocks)) < len(blocks):
            raise ValueError(f"A table names each block once; got {blocks}.")
        for block in blocks:
            if not 0 <= block < self.num_blocks:
                raise ValueError(f"The pool has blocks 0 to {self.num_blocks - 1}; got block {block}.")
            if not self.ref_counts[block]:
                raise ValueError(f"Block {block} is free: it must be allocated before it is shared or freed.")
        return blocks
