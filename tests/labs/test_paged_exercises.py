"""The exercises of lab 03 ask for what the library does: the same tables, slots and keys."""

from __future__ import annotations

import torch

from labllm.attention.paged_ladder import PAGED_DECODE, PagedDecode
from labllm.attention.paged_torch import gather, key_slots
from labllm.bench import measure
from labllm.cache.paged import PagedCache
from labllm.cache.pool import BlockPool, OutOfBlocks
from labllm.cache.step import Step
from labllm.cache.table import BlockTable
from labllm.labs.exercises.gather_blocks import as_rung
from labllm.labs.registry import exercises, get, solution_function


def arguments(name: str):
    exercise = get(name)
    return [exercise.arguments(case) for case in exercise.cases]


def pool_with(blocks: list[int], num_tokens: int, free: list[int], size: int, num_blocks: int = 10):
    """A pool whose free line is `free`, and the table of a sequence that holds `blocks`."""
    pool = BlockPool(num_blocks, size)
    pool.allocate(num_blocks)
    for block in free:
        pool.free([block])
    table = BlockTable(pool)
    table.blocks, table.num_tokens = list(blocks), num_tokens
    return pool, table


def test_lab_03_has_its_four_exercises():
    assert sorted(e.name for e in exercises(3)) == ["allocate_append", "copy_on_write", "gather_blocks", "slot_mapping"]


def test_allocate_append_is_the_table_s():
    for blocks, num_tokens, num_new, free, size in arguments("allocate_append"):
        pool, table = pool_with(blocks, num_tokens, free, size)
        try:
            table.append(num_new)
        except OutOfBlocks:
            pass
        blocks, free = list(blocks), list(free)
        solution_function("allocate_append")(blocks, num_tokens, num_new, free, size)
        assert (blocks, free) == (table.blocks, pool.free_blocks)


def test_slot_mapping_is_the_step_s():
    for table, totals, new, size in arguments("slot_mapping"):
        tables = [[b for b in row if b >= 0] for row in table.tolist()]
        cached = (totals - new).tolist()
        step = Step.paged(tables, cached, new.tolist(), size)
        assert torch.equal(solution_function("slot_mapping")(table, totals, new, size), step.slot_mapping)


def test_gather_blocks_is_the_attention_room_s():
    for cache, table, lens in arguments("gather_blocks"):
        out = solution_function("gather_blocks")(cache, table, lens)
        expected = gather(cache, key_slots(table, lens, cache.shape[1], 0, int(lens.max())))
        for row, right, n in zip(out, expected, lens.tolist(), strict=True):
            assert torch.equal(row[:n], right[:n]) and not row[n:].any()


def test_gather_blocks_climbs_the_ladder_as_yours():
    ladder = PAGED_DECODE.only("gather").extended(as_rung(solution_function("gather_blocks")))
    for spread in ("equal", "even"):
        records = measure(ladder, PagedDecode(48, 2, 8, spread, 4, 2, 64, "float32"))
        assert {r.rung: r.status for r in records} == {"gather": "ok", "yours": "ok"}


def test_copy_on_write_is_the_table_s_and_the_cache_s():
    for blocks, num_tokens, counts, free, content in arguments("copy_on_write"):
        num_blocks, size, heads, dim = content.shape
        pool, table = pool_with(blocks, num_tokens, free, size, num_blocks)
        pool.ref_counts[:] = counts
        cache = PagedCache(1, num_blocks, size, heads, dim)
        cache.k(0).copy_(content)
        made = table.append()
        cache.copy_blocks(made.copies)
        mine, counts, free = list(blocks), list(counts), list(free)
        solution_function("copy_on_write")(mine, num_tokens, counts, free, content)
        if num_tokens % size:  # behind a full block the table takes a new one as well, which is another exercise
            assert (mine, free, counts) == (table.blocks, pool.free_blocks, pool.ref_counts)
        assert torch.equal(content, cache.k(0))
