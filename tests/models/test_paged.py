"""A model over a paged cache: any order of reading, forking and ending gives what recompute gives."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from labllm.cache.invariants import check
from labllm.cache.pool import OutOfBlocks
from labllm.cache.table import BlockTable
from labllm.cache.waste import footprint
from labllm.models.config import ModelConfig
from labllm.models.generate import generate_recompute
from labllm.models.llama import Llama
from labllm.models.load import from_config
from labllm.models.paged import PagedModel, generate_forked, generate_paged
from labllm.models.rope import RopeConfig


@cache
def tiny() -> Llama:
    """Two layers, one of them windowed, in float64, so that paths differ by rounding of 1e-15 and errors stand out."""
    model = from_config(
        ModelConfig("qwen2", 31, 16, 24, 2, 4, 2, 6, 64, RopeConfig(), (5, None), qkv_bias=True), dtype=torch.float64
    )
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(8)
    return model


class Replayed:
    """Sequences of a paged model, each with the ids that it should hold; what is read is compared with recompute."""

    def __init__(self, block_size: int, seed: int) -> None:
        self.generator = torch.Generator().manual_seed(seed)
        self.paged = PagedModel(tiny(), 12, block_size)
        self.paged.cache.pool.normal_(generator=self.generator)
        self.sequences: list[tuple[BlockTable, list[int]]] = []

    def read(self, which: int, count: int) -> None:
        chosen = self.sequences[which % 3 :: 2]
        chosen = [(t, ids) for t, ids in chosen if len(ids) + count <= 30] or [(BlockTable(self.paged.pool), [])]
        chunks = torch.randint(31, (len(chosen), count), generator=self.generator).tolist()
        before = [(list(t.blocks), t.num_tokens) for t, _ in chosen], list(self.paged.pool.ref_counts)
        try:
            logits = self.paged.read([t for t, _ in chosen], chunks)
        except OutOfBlocks:
            assert before == ([(t.blocks, t.num_tokens) for t, _ in chosen], self.paged.pool.ref_counts)
            return
        if not chosen[0][1]:
            self.sequences += chosen
        for (_, ids), chunk, found in zip(chosen, chunks, logits, strict=True):
            ids += chunk
            torch.testing.assert_close(found, tiny().forward_dense(torch.tensor([ids]))[0, -1])

    def fork(self, which: int, _: int) -> None:
        if self.sequences and len(self.sequences) < 6:
            table, ids = self.sequences[which % len(self.sequences)]
            self.sequences.append((table.fork(), list(ids)))

    def end(self, which: int, _: int) -> None:
        if self.sequences:
            self.sequences.pop(which % len(self.sequences))[0].free()


@settings(max_examples=120, deadline=None)
@given(
    block_size=st.sampled_from([1, 3, 4, 16]),
    seed=st.integers(0, 2**16),
    operations=st.lists(
        st.tuples(st.sampled_from(["read", "read", "fork", "end"]), st.integers(0, 9), st.integers(1, 7)), max_size=16
    ),
)
def test_any_order_of_operations_equals_recompute(block_size: int, seed: int, operations: list) -> None:
    run = Replayed(block_size, seed)
    for name, which, count in operations:
        getattr(run, name)(which, count)
        check(run.paged.pool, [table for table, _ in run.sequences])


def test_forks_share_their_beginning_in_memory() -> None:
    paged = PagedModel(tiny(), 20, block_size=4)
    first = BlockTable(paged.pool)
    paged.read([first], [[1, 2, 3, 4, 5, 6]])
    tables = [first, first.fork(), first.fork()]
    assert paged.pool.num_free == 18
    paged.read(tables, [[7], [8], [9, 10, 11]])
    found = footprint(tables)
    assert (found.tokens, found.used, found.reserved) == (23, 4 + 3 + 3 + 5, 20)


@pytest.mark.parametrize("block_size", [1, 4, 64])
def test_generation_equals_recompute(block_size: int) -> None:
    prompts = [[1, 2, 3, 4, 5], [6], [7, 8, 9, 10]]
    assert generate_paged(tiny(), prompts, 9, block_size) == generate_recompute(tiny(), prompts, 9)
    tails = [[1], [2, 3, 4], [1, 5]]
    whole = [[9, 8, 7, 6, 5, *tail] for tail in tails]
    assert generate_forked(tiny(), [9, 8, 7, 6, 5], tails, 9, block_size) == generate_recompute(tiny(), whole, 9)


@pytest.mark.parametrize(
    "generate", [generate_paged, lambda model, prompts, new: generate_forked(model, [1], prompts, new)]
)
def test_bad_prompts_are_refused(generate: Callable) -> None:
    for prompts, new, said in (
        ([[1], []], 2, "at least one token"),
        ([], 2, "at least one token"),
        ([[1]], 0, "max_new_tokens >= 1"),
        ([[1, 31]], 2, r"0 \.\. 30; got 31"),
        ([[1] * 60], 5, "64 positions"),
    ):
        with pytest.raises(ValueError, match=said):
            generate(tiny(), prompts, new)
    with pytest.raises(ValueError, match="at least one token"):
        generate_forked(tiny(), [], [[1]], 2)
    with pytest.raises(ValueError, match="block_size 0"):
        generate_paged(tiny(), [[1]], 2, block_size=0)
