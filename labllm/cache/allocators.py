"""Three ways to find room for sequences whose length nobody knows, behind one interface.

    MaxLength    reserves the longest length that is allowed, in one piece, when a sequence comes
    PowerOfTwo   reserves the next power of two and doubles when that is full, in one piece each time
    Paged        takes a block when the last one is full, anywhere

The first never has to take back what it promised. The others admit more than they could serve if all grew to the end:
then `grow` fails, and somebody must give up its place and be read again later (preemption). Kwon et al., SOSP 2023,
compare the same three kinds.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Protocol

from labllm.cache.buddy import Buddies
from labllm.cache.pool import BlockPool
from labllm.cache.reserve import Arena, Reservation
from labllm.cache.table import BlockTable


class Allocator(Protocol):
    """Slots of one token each, given to sequences by name."""

    num_slots: int

    def admit(self, owner: Hashable, prompt_len: int, max_len: int) -> bool:
        """Take in a sequence of prompt_len tokens that may reach max_len; False, and no change, without room.

        Raises ValueError, and changes nothing, for no token, for more than max_len, and for an owner that is in.
        """

    def grow(self, owner: Hashable) -> bool:
        """Room for one more token of `owner`; False, and no change, without room."""

    def finish(self, owner: Hashable) -> None:
        """Give all slots of `owner` back."""

    def held(self, owner: Hashable) -> int:
        """Slots that belong to `owner`, with or without a token."""

    def spans(self, owner: Hashable) -> list[tuple[int, int]]:
        """(start, size) of the slots of `owner`, in the order in which its tokens fill them."""


class MaxLength:
    """One piece of max_len slots for each sequence, first fit."""

    def __init__(self, num_slots: int) -> None:
        self.num_slots, self.arena = num_slots, Arena(num_slots)

    def admit(self, owner: Hashable, prompt_len: int, max_len: int) -> bool:
        _check(owner, owner in self.arena.spans, prompt_len, max_len)
        if self.arena.allocate(owner, max_len) is None:
            return False
        self.arena.append(owner, prompt_len)
        return True

    def grow(self, owner: Hashable) -> bool:
        self.arena.append(owner)
        return True

    def finish(self, owner: Hashable) -> None:
        self.arena.free(owner)

    def held(self, owner: Hashable) -> int:
        return self.arena.of(owner).size

    def spans(self, owner: Hashable) -> list[tuple[int, int]]:
        return [(self.arena.of(owner).start, self.arena.of(owner).size)]


class PowerOfTwo:
    """One piece for each sequence, which doubles as it fills."""

    def __init__(self, num_slots: int) -> None:
        self.num_slots, self.buddies = num_slots, Buddies(num_slots)

    def admit(self, owner: Hashable, prompt_len: int, max_len: int) -> bool:
        _check(owner, owner in self.buddies.spans, prompt_len, max_len)
        span = self.buddies.allocate(owner, prompt_len)
        if span is None:
            return False
        span.used = prompt_len
        return True

    def grow(self, owner: Hashable) -> bool:
        span: Reservation | None = self.buddies.spans[owner]
        if span.used == span.size:
            span = self.buddies.double(owner)
        if span is None:
            return False
        span.used += 1
        return True

    def finish(self, owner: Hashable) -> None:
        self.buddies.free(owner)

    def held(self, owner: Hashable) -> int:
        return self.buddies.spans[owner].size

    def spans(self, owner: Hashable) -> list[tuple[int, int]]:
        return [(self.buddies.spans[owner].start, self.buddies.spans[owner].size)]


class Paged:
    """Blocks of a pool; a sequence comes in only if `watermark` of all blocks stay free for the growth of others.

    The tables are real: `tables[owner]` can be drawn while a trace is replayed. Slots that make no whole block stay
    unused. Raises ValueError for less than one block.
    """

    def __init__(self, num_slots: int, block_size: int = 16, watermark: float = 0.01) -> None:
        if not 1 <= block_size <= num_slots:
            raise ValueError(f"block_size must lie in 1 .. {num_slots}, the slots that there are; got {block_size}.")
        self.pool = BlockPool(num_slots // block_size, block_size)
        self.num_slots, self.kept = num_slots, int(watermark * self.pool.num_blocks)
        self.tables: dict[Hashable, BlockTable] = {}

    def admit(self, owner: Hashable, prompt_len: int, max_len: int) -> bool:
        _check(owner, owner in self.tables, prompt_len, max_len)
        kept = self.kept if self.tables else 0
        if self.pool.blocks_for(prompt_len) + kept > self.pool.num_free:
            return False
        self.tables[owner] = table = BlockTable(self.pool)
        table.append(prompt_len)
        return True

    def grow(self, owner: Hashable) -> bool:
        table = self.tables[owner]
        if table.num_tokens % self.pool.block_size == 0 and not self.pool.num_free:
            return False
        table.append()
        return True

    def finish(self, owner: Hashable) -> None:
        self.tables.pop(owner).free()

    def held(self, owner: Hashable) -> int:
        return len(self.tables[owner].blocks) * self.pool.block_size

    def spans(self, owner: Hashable) -> list[tuple[int, int]]:
        size = self.pool.block_size
        return [(block * size, size) for block in self.tables[owner].blocks]


def _check(owner: Hashable, is_in: bool, prompt_len: int, max_len: int) -> None:
    if not 1 <= prompt_len <= max_len:
        raise ValueError(f"A sequence comes with 1 to max_len = {max_len} tokens; {owner!r} has {prompt_len}.")
    if is_in:
        raise ValueError(f"{owner!r} has a place already; finish it before it is admitted again.")
