"""The pool and its tables by hand: counts, the order of the free line, slots, forks, copy-on-write, refusals."""

from __future__ import annotations

import pytest

from labllm.cache.invariants import check
from labllm.cache.pool import BlockPool, OutOfBlocks
from labllm.cache.table import BlockTable, append_all, blocks_needed


def test_the_block_that_is_free_longest_is_allocated_next() -> None:
    pool = BlockPool(4, 16)
    assert pool.allocate(3) == [0, 1, 2]
    pool.free([2])
    pool.free([0, 1])
    assert pool.free_blocks == [3, 2, 0, 1]
    assert pool.allocate(2) == [3, 2] and pool.num_free == 2


def test_a_shared_block_is_free_when_the_last_holder_frees_it() -> None:
    pool = BlockPool(2, 16)
    (block,) = pool.allocate()
    pool.share([block])
    pool.free([block])
    assert pool.ref_counts == [1, 0] and pool.free_blocks == [1]
    pool.free([block])
    assert pool.ref_counts == [0, 0] and pool.free_blocks == [1, 0]


def test_allocation_is_all_or_nothing() -> None:
    pool = BlockPool(3, 16)
    pool.allocate()
    with pytest.raises(OutOfBlocks, match="3 blocks are needed and 2 of 3 are free"):
        pool.allocate(3)
    assert pool.num_free == 2 and pool.ref_counts == [1, 0, 0]
    assert pool.allocate(0) == []


def test_a_pool_refuses_in_a_sentence_and_keeps_its_state() -> None:
    pool = BlockPool(3, 16)
    pool.allocate(2)
    refusals = ([0, 2], "Block 2 is free"), ([0, 3], "blocks 0 to 2"), ([-1], "got block -1"), ([1, 1], "once")
    for wrong, said in refusals:
        for method in (pool.share, pool.free):
            with pytest.raises(ValueError, match=said):
                method(wrong)
    assert pool.ref_counts == [1, 1, 0]
    with pytest.raises(ValueError, match="cannot be negative"):
        pool.allocate(-1)
    with pytest.raises(ValueError, match="0 x 16"):
        BlockPool(0, 16)


def test_tokens_get_slots_in_blocks_wherever_they_are() -> None:
    pool = BlockPool(8, 4)
    other, table = BlockTable(pool), BlockTable(pool)
    assert table.append(3) == ([0, 1, 2], [])
    other.append(1)
    assert table.append(3).slots == [3, 8, 9], "block 0 is filled, then block 2 begins"
    assert (table.blocks, table.num_tokens) == ([0, 2], 6)
    assert table.slots(2, 5) == [2, 3, 8] and table.slots(6, 6) == []
    check(pool, [table, other])


def test_a_table_frees_its_last_block_first() -> None:
    pool = BlockPool(3, 4)
    table = BlockTable(pool)
    table.append(12)
    table.free()
    assert pool.free_blocks == [2, 1, 0] and (table.blocks, table.num_tokens) == ([], 0)
    table.free()
    check(pool, [table])


def test_the_first_writer_into_a_shared_block_copies_it_and_the_last_holder_keeps_it() -> None:
    pool = BlockPool(8, 4)
    parent = BlockTable(pool)
    parent.append(6)
    child = parent.fork()
    assert pool.ref_counts[:2] == [2, 2] and child.blocks == [0, 1]
    assert child.append(1) == ([2 * 4 + 2], [(1, 2)])
    assert child.blocks == [0, 2] and parent.blocks == [0, 1] and pool.ref_counts[:3] == [2, 1, 1]
    assert parent.append(1) == ([1 * 4 + 2], []), "nobody else names block 1 any more"
    check(pool, [parent, child])
    parent.free()
    assert pool.ref_counts[:3] == [1, 0, 1]
    check(pool, [parent, child])


def test_full_blocks_are_shared_without_a_copy() -> None:
    pool = BlockPool(4, 4)
    parent = BlockTable(pool)
    parent.append(4)
    child = parent.fork()
    assert (child.append(1).copies, parent.append(1).copies) == ([], [])
    assert (parent.blocks, child.blocks) == ([0, 2], [0, 1])


def test_appending_to_many_is_all_or_nothing() -> None:
    pool = BlockPool(4, 4)
    parent = BlockTable(pool)
    parent.append(2)
    family = [parent, parent.fork(), parent.fork()]
    assert blocks_needed(family, [1, 1, 1]) == 2, "the third keeps the block"
    assert blocks_needed(family[:2], [1, 1]) == 2, "the third, which does not write, keeps the block"
    assert blocks_needed(family, [1, 3, 1]) == 3
    with pytest.raises(OutOfBlocks, match="4 blocks are needed and 3 are free"):
        append_all(family, [3, 1, 3])
    with pytest.raises(ValueError, match="at least one token"):
        append_all(family, [1, 0, 1])
    assert [t.num_tokens for t in family] == [2, 2, 2] and pool.num_free == 3
    slots, copies = append_all(family, [1, 3, 1])
    assert copies == [(0, 1), (0, 2)] and slots == [6, 10, 11, 12, 2]
    check(pool, family)


def test_a_table_that_cannot_grow_stays_as_it_was() -> None:
    pool = BlockPool(1, 4)
    table = BlockTable(pool)
    table.append(2)
    fork = table.fork()
    for append in (lambda: table.append(3), lambda: fork.append(1)):
        with pytest.raises(OutOfBlocks):
            append()
    assert (table.blocks, table.num_tokens, pool.ref_counts) == ([0], 2, [2])
    check(pool, [table, fork])


def test_a_table_refuses() -> None:
    table = BlockTable(BlockPool(2, 4))
    table.append(3)
    with pytest.raises(ValueError, match="at least one token; got 0"):
        table.append(0)
    for start, end in ((2, 4), (-1, 2), (2, 1)):
        with pytest.raises(ValueError, match="tokens 0 to 2"):
            table.slots(start, end)


def broken(name: str) -> tuple[BlockPool, list[BlockTable]]:
    """A pool and two tables that share block 0, damaged in one way."""
    pool = BlockPool(4, 4)
    first = BlockTable(pool)
    first.append(6)
    second = first.fork()
    second.append(1)
    tables = [first, second]
    if name == "leaked":
        tables.pop()
    elif name == "owned twice":
        pool.ref_counts[0] -= 1
    elif name == "count 0 and the free line":
        pool._free.clear()
    elif name == "needs 2":
        first.blocks.pop()
    elif name == "names a block twice":
        first.blocks[1] = first.blocks[0]
    elif name == "tokens for one table and 4 for another":
        first.blocks, first.num_tokens = [0], 3
    elif name == "blocks 0 to 3":
        first.blocks[1] = 9
    elif name == "another pool":
        first.pool = BlockPool(4, 4)
    return pool, tables


FAULTS = (
    "leaked",
    "owned twice",
    "count 0 and the free line",
    "needs 2",
    "names a block twice",
    "tokens for one table and 4 for another",
    "blocks 0 to 3",
    "another pool",
)


def test_the_check_accepts_a_sound_pool() -> None:
    check(*broken("not at all"))


@pytest.mark.parametrize("fault", FAULTS)
def test_the_check_finds_every_kind_of_damage(fault: str) -> None:
    with pytest.raises(AssertionError, match=fault):
        check(*broken(fault))
