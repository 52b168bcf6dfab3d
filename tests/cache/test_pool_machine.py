"""A hundred thousand random operations on pools of every shape, each compared with a model that shares nothing.

The model keeps a plain list of tokens for every sequence. Beside the pool stands a memory of one token a slot: what is
appended is written there, copies are made there, and after every operation each sequence is read back through its
table. A block that is leaked, owned twice, copied too late or not at all shows up as a wrong token or in `check`.
"""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from labllm.cache.invariants import check
from labllm.cache.pool import BlockPool, OutOfBlocks
from labllm.cache.table import BlockTable, append_all, blocks_needed

OPERATIONS = 100_000
SETTINGS = settings(max_examples=50, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck))
DONE = Counter[str]()


class PoolMachine(RuleBasedStateMachine):
    """Sequences (a table and the tokens that it should hold) over one pool and one memory."""

    @initialize(num_blocks=st.integers(1, 24), block_size=st.sampled_from([1, 2, 3, 4, 16]))
    def begin(self, num_blocks: int, block_size: int) -> None:
        self.pool = BlockPool(num_blocks, block_size)
        self.memory: list[int | None] = [None] * (num_blocks * block_size)
        self.sequences: list[tuple[BlockTable, list[int]]] = []
        self.written = 0

    @rule(which=st.integers(0, 99), count=st.integers(1, 40))
    def append(self, which: int, count: int) -> None:
        self._append([self._new() if which == 99 or not self.sequences else self._pick(which)], [count])

    @rule(counts=st.lists(st.integers(1, 5), min_size=1, max_size=6))
    def append_to_many(self, counts: list[int]) -> None:
        chosen = self.sequences[: len(counts)]
        self._append(chosen, counts[: len(chosen)])

    @precondition(lambda self: self.sequences)
    @rule(which=st.integers(0, 99))
    def fork(self, which: int) -> None:
        table, tokens = self._pick(which)
        if len(self.sequences) < 12:
            self.sequences.append((table.fork(), list(tokens)))
        self._account("fork")

    @precondition(lambda self: self.sequences)
    @rule(which=st.integers(0, 99))
    def free(self, which: int) -> None:
        self.sequences.pop(which % len(self.sequences))[0].free()
        self._account("free")

    @precondition(lambda self: self.sequences)
    @rule(which=st.integers(0, 99))
    def free_what_is_free(self, which: int) -> None:
        before = list(self.pool.ref_counts)
        for block in self.pool.free_blocks[:1]:
            with pytest.raises(ValueError, match="is free"):
                self.pool.free([*self._pick(which)[0].blocks, block])
        assert self.pool.ref_counts == before
        self._account("refused")

    @rule(seed=st.integers(0, 2**32 - 1))
    def burst(self, seed: int) -> None:
        """Many operations at the price of one draw."""
        draw = random.Random(seed)
        for _ in range(60):
            name, which = draw.choice(("append", "many", "many", "fork", "free")), draw.randrange(100)
            refused = DONE["out of blocks"]
            if name == "many":
                self.append_to_many([draw.randint(1, 5) for _ in range(draw.randint(1, 6))])
            elif name == "append" or not self.sequences:
                self.append(which, draw.randint(1, 2 * self.pool.block_size))
            elif name == "fork":
                self.fork(which)
            if name == "free" or DONE["out of blocks"] > refused:
                self.free(which)
        if self.sequences:
            self.free_what_is_free(0)

    def _new(self) -> tuple[BlockTable, list[int]]:
        self.sequences.append((BlockTable(self.pool), []))
        return self.sequences[-1]

    def _pick(self, which: int) -> tuple[BlockTable, list[int]]:
        return self.sequences[which % len(self.sequences)]

    def _append(self, chosen: list[tuple[BlockTable, list[int]]], counts: list[int]) -> None:
        tables, free = [table for table, _ in chosen], self.pool.num_free
        needed = blocks_needed(tables, counts)
        try:
            slots, copies = append_all(tables, counts)
        except OutOfBlocks:
            assert needed > free
            return self._account("out of blocks")
        assert self.pool.num_free == free - needed, "the need is known exactly beforehand"
        size = self.pool.block_size
        for source, target in copies:
            self.memory[target * size : target * size + size] = self.memory[source * size : source * size + size]
        new = [self.written + i for i in range(sum(counts))]
        self.written += len(new)
        for slot, token in zip(slots, new, strict=True):
            self.memory[slot] = token
        for (_, tokens), count in zip(chosen, counts, strict=True):
            tokens += new[:count]
            del new[:count]
        self._account("copy-on-write" if copies else "append")

    def _account(self, name: str) -> None:
        DONE[name] += 1
        check(self.pool, [table for table, _ in self.sequences])
        for table, tokens in self.sequences:
            assert [self.memory[slot] for slot in table.slots(0, table.num_tokens)] == tokens

    def teardown(self) -> None:
        if hasattr(self, "pool"):
            for table, _ in self.sequences:
                table.free()
            check(self.pool, [])
            assert self.pool.num_free == self.pool.num_blocks


def test_pools_under_random_operations() -> None:
    DONE.clear()
    while DONE.total() < OPERATIONS:
        run_state_machine_as_test(PoolMachine, settings=SETTINGS)
    kinds = ("append", "copy-on-write", "fork", "free", "out of blocks", "refused")
    assert min(DONE[kind] for kind in kinds) > 100, DONE
