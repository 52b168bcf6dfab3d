"""What must hold of a pool and its tables after every operation, checked in O(blocks + table entries).

A leaked block is memory lost until the server restarts; a block owned twice is one user's text read by another. Both
are silent, so tests and engines call this.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from labllm.cache.pool import BlockPool
from labllm.cache.table import BlockTable


def check(pool: BlockPool, tables: Iterable[BlockTable]) -> None:
    """Raise AssertionError, in a sentence, unless `tables`, all that there are, account for every block of the pool.

    Nothing leaked and nothing owned twice: each count is the number of tables that name the block, and the free line
    holds exactly the blocks with count 0, once each. A table has as many blocks as its tokens need, none twice.
    Sequences that share a block agree on how many of its slots are filled, so neither writes over the other's tokens.
    """
    tables = list(tables)
    for fault in (*_in_tables(pool, tables), *_in_counts(pool, tables)):
        raise AssertionError(f"The pool is broken: {fault}.")


def _in_tables(pool: BlockPool, tables: list[BlockTable]) -> Iterator[str]:
    fill: dict[int, int] = {}
    for table in tables:
        needed = pool.blocks_for(table.num_tokens)
        if table.pool is not pool:
            yield "a table belongs to another pool"
        if len(table.blocks) != needed:
            yield f"a table of {table.num_tokens} tokens has {len(table.blocks)} blocks and needs {needed}"
        if len(set(table.blocks)) < len(table.blocks):
            yield f"a table names a block twice: {table.blocks}"
        for index, block in enumerate(table.blocks):
            filled = min(pool.block_size, table.num_tokens - index * pool.block_size)
            if fill.setdefault(block, filled) != filled:
                yield f"block {block} holds {fill[block]} tokens for one table and {filled} for another"


def _in_counts(pool: BlockPool, tables: list[BlockTable]) -> Iterator[str]:
    named = Counter(block for table in tables for block in table.blocks)
    for block in named:
        if not 0 <= block < pool.num_blocks:
            yield f"a table names block {block} and the pool has blocks 0 to {pool.num_blocks - 1}"
    for block, count in enumerate(pool.ref_counts):
        if count != named[block]:
            fault = "is owned twice" if count < named[block] else "leaked"
            yield f"block {block} {fault}: {named[block]} tables name it and its count is {count}"
    free, unheld = pool.free_blocks, [block for block, count in enumerate(pool.ref_counts) if not count]
    if sorted(free) != unheld:
        yield f"blocks {unheld} have count 0 and the free line is {free}"
