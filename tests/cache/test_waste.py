"""Footprints: equal to counting slots one by one, for real tables with forks and for lengths alone."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labllm.cache.pool import BlockPool
from labllm.cache.table import BlockTable
from labllm.cache.waste import Footprint, footprint, paged_footprint

LENGTHS = st.lists(st.integers(1, 60), max_size=8)


@settings(max_examples=100, deadline=None)
@given(LENGTHS, st.integers(1, 20))
def test_a_footprint_of_lengths_is_that_of_tables(lengths: list[int], block_size: int) -> None:
    tables = [BlockTable(BlockPool(60, block_size)) for _ in lengths]
    for table, length in zip(tables, lengths, strict=True):
        table.append(length)
    found = paged_footprint(lengths, block_size)
    assert found == footprint(tables)
    assert found.saved == 0 and found.wasted == sum(-length % block_size for length in lengths)
    assert found.wasted <= len(lengths) * (block_size - 1)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.booleans()), max_size=20), st.integers(1, 6))
def test_shared_slots_are_counted_once(operations: list[tuple[int, int, bool]], block_size: int) -> None:
    pool = BlockPool(400, block_size)
    tables = [BlockTable(pool)]
    for which, count, fork in operations:
        table = tables[which % len(tables)]
        if fork:
            tables.append(table.fork())
        elif count:
            table.append(count)
    found = footprint(tables)
    assert found.used == len({slot for table in tables for slot in table.slots(0, table.num_tokens)})
    assert found.reserved == (pool.num_blocks - pool.num_free) * block_size
    assert found.tokens == sum(table.num_tokens for table in tables) == found.used + found.saved
    assert found.table_bytes == 4 * len(tables) * max(len(table.blocks) for table in tables)


def test_by_hand() -> None:
    found = paged_footprint([17, 3, 32], 16)
    assert found == Footprint(tokens=52, used=52, reserved=80, table_bytes=4 * 3 * 2)
    assert (found.wasted, found.waste) == (28, 28 / 80)
    assert paged_footprint([], 16) == footprint([]) == Footprint(0, 0, 0, 0) and footprint([]).waste == 0
    for wrong in (([1], 0), ([-1], 4)):
        with pytest.raises(ValueError, match="at least"):
            paged_footprint(*wrong)
