"""Blocks that are known by what they hold."""

from __future__ import annotations

import random

import pytest

from labllm.cache.invariants import check
from labllm.cache.pool import OutOfBlocks
from labllm.cache.prefix import PrefixPool, chain
from labllm.cache.table import BlockTable


def names(ids: list[int], block_size: int) -> list[bytes]:
    """One name a full block."""
    made: list[bytes] = []
    for start in range(0, len(ids) - block_size + 1, block_size):
        made.append(chain(made[-1] if made else b"", ids[start : start + block_size]))
    return made


def test_a_name_stands_for_the_whole_beginning() -> None:
    a, b, c = names([1, 2, 3, 4], 2), names([1, 2, 3, 5], 2), names([9, 2, 3, 4], 2)
    assert a[0] == b[0] and a[1] != b[1], "tokens of the block itself"
    assert a[1] != c[1], "tokens before it"
    assert names([258], 1) != names([2, 1], 1) and names([1, 2], 2) != names([1, 2], 1)[1:]


def test_find_stops_at_the_first_block_that_is_not_known() -> None:
    pool, wanted = PrefixPool(4, 2), names(list(range(8)), 2)
    blocks = pool.allocate(3)
    for block, name in zip(blocks, (wanted[0], wanted[1], wanted[3]), strict=True):
        assert pool.name(block, name)
    assert pool.find(wanted) == blocks[:2] and pool.find(wanted[1:]) == blocks[1:2] and pool.find([]) == []


def test_free_blocks_are_found_until_they_are_allocated_anew_the_oldest_first() -> None:
    pool, wanted = PrefixPool(3, 1), names([7, 8, 9], 1)
    table = BlockTable(pool)
    table.append(3)
    for block, name in zip(table.blocks, wanted, strict=True):
        pool.name(block, name)
    held = list(table.blocks)
    table.free()
    assert pool.num_free == 3 and pool.find(wanted) == held
    assert pool.allocate(1) == [held[2]], "a table gives its last block back first, so beginnings live longest"
    assert pool.find(wanted) == held[:2] and pool.num_named == 2


def test_adopting_shares_what_is_held_and_revives_what_is_free() -> None:
    pool, wanted = PrefixPool(4, 2), names([1, 2, 3, 4], 2)
    first, second, third = (BlockTable(pool) for _ in range(3))
    first.append(4)
    for block, name in zip(first.blocks, wanted, strict=True):
        pool.name(block, name)
    hits = pool.find(wanted)
    assert pool.num_held(hits) == 2
    pool.adopt(second, hits)
    assert second.num_tokens == 4 and pool.num_free == 2
    check(pool, [first, second])
    first.free()
    second.free()
    assert pool.num_held(hits) == 0
    pool.adopt(third, pool.find(wanted))
    assert third.blocks == hits and pool.num_free == 2
    check(pool, [third])
    third.append(1)
    assert third.blocks[:2] == hits, "what follows goes into a block of its own"
    with pytest.raises(ValueError, match="Only an empty table"):
        pool.adopt(third, hits)


def test_the_second_block_with_a_content_stays_nameless() -> None:
    pool, (name,) = PrefixPool(2, 1), names([5], 1)
    one, two = pool.allocate(2)
    assert pool.name(one, name) and not pool.name(two, name) and not pool.name(one, name)
    pool.forget([two])
    assert pool.find([name]) == [one]
    pool.forget()
    assert pool.find([name]) == [] and pool.name(two, name)


@pytest.mark.parametrize("seed", range(20))
def test_what_is_found_holds_what_was_asked_for(seed: int) -> None:
    """Random sequences over a memory of one token a slot: a hit is compared with the tokens that it stands for."""
    draw, size = random.Random(seed), 2
    pool, live = PrefixPool(12, size), list[BlockTable]()
    memory = [-1] * 24
    for _ in range(400):
        if live and (draw.random() < 0.4 or len(live) == 6):
            live.pop(draw.randrange(len(live))).free()
        ids = [draw.randrange(2) for _ in range(draw.randrange(1, 9))]
        table, wanted = BlockTable(pool), names(ids, size)
        pool.adopt(table, pool.find(wanted[: (len(ids) - 1) // size]))
        assert [memory[slot] for slot in table.slots(0, table.num_tokens)] == ids[: table.num_tokens]
        start = table.num_tokens
        try:
            slots = table.append(len(ids) - start).slots
        except OutOfBlocks:
            table.free()
            continue
        for slot, token in zip(slots, ids[start:], strict=True):
            memory[slot] = token
        for block, name in zip(table.blocks, wanted, strict=False):
            pool.name(block, name)
        live.append(table)
        check(pool, live)
