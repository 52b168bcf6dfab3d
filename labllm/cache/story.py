"""What happens to a pool as sequences arrive, grow, fork and finish: a list of events, and the state after each.

The pool and the tables are the real ones (`labllm.cache.pool`, `labllm.cache.table`), and their invariants are checked
after every event. Besides, each slot remembers which token was written there, so that a copy can be seen to be one. An
event that finds too few free blocks changes nothing and says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from labllm.cache.invariants import check
from labllm.cache.pool import BlockPool, OutOfBlocks
from labllm.cache.table import BlockTable

CANNOT = ", and cannot"


class Event(NamedTuple):
    """`arrive` and `grow` bring `tokens`; `fork` makes `child` from `name`; `finish` gives everything back."""

    what: Literal["arrive", "grow", "fork", "finish"]
    name: str
    tokens: int = 1
    child: str = ""

    @property
    def words(self) -> str:
        """The event in words."""
        tokens = f"{self.tokens} token{'' if self.tokens == 1 else 's'}"
        return {
            "arrive": f"{self.name} arrives with {tokens}",
            "grow": f"{self.name} grows by {tokens}",
            "fork": f"{self.child} forks from {self.name}",
            "finish": f"{self.name} finishes",
        }[self.what]


class Frame(NamedTuple):
    """After an event: its words, each table's (blocks, tokens), what every slot holds, the free line, blocks that are
    new and (from, to) copies."""

    words: str
    tables: dict[str, tuple[tuple[int, ...], int]]
    slots: tuple[str, ...]
    free: tuple[int, ...]
    new: tuple[int, ...] = ()
    copies: tuple[tuple[int, int], ...] = ()


def play(events: Sequence[Event], num_blocks: int, block_size: int) -> Iterator[Frame]:
    """The empty pool, then a frame after each event.

    Raises ValueError for an event of a sequence that is not there, or one that is there twice.
    """
    pool, tables = BlockPool(num_blocks, block_size), dict[str, BlockTable]()
    slots = [""] * (num_blocks * block_size)
    yield Frame("the pool is empty", {}, tuple(slots), tuple(pool.free_blocks))
    for event in events:
        words, held = event.words, {block for table in tables.values() for block in table.blocks}
        copies: list[tuple[int, int]] = []
        try:
            copies = _happen(event, pool, tables, slots)
        except OutOfBlocks as full:
            words = f"{words}{CANNOT}: {full}"
            if not tables.get(event.name, BlockTable(pool)).blocks:
                tables.pop(event.name, None)
        check(pool, tables.values())
        for block in pool.free_blocks:
            slots[block * block_size : (block + 1) * block_size] = [""] * block_size
        new = {block for table in tables.values() for block in table.blocks} - held
        state = {name: (tuple(table.blocks), table.num_tokens) for name, table in tables.items()}
        yield Frame(words, state, tuple(slots), tuple(pool.free_blocks), tuple(sorted(new)), tuple(copies))


def _happen(event: Event, pool: BlockPool, tables: dict[str, BlockTable], slots: list[str]) -> list[tuple[int, int]]:
    known, comes = event.name in tables, event.child or event.name
    if known == (event.what == "arrive") or (event.child and event.child in tables):
        raise ValueError(
            f"{event.words!r} cannot happen: of {event.name} and {comes}, {', '.join(tables) or 'none'} is there"
        )
    if event.what == "finish":
        tables.pop(event.name).free()
        return []
    if event.what == "fork":
        tables[event.child] = tables[event.name].fork()
        return []
    table = tables.setdefault(event.name, BlockTable(pool))
    start, size = table.num_tokens, pool.block_size
    made = table.append(event.tokens)
    for source, target in made.copies:
        slots[target * size : (target + 1) * size] = slots[source * size : (source + 1) * size]
    for number, slot in enumerate(made.slots, start):
        slots[slot] = f"{event.name}{number}"
    return made.copies
