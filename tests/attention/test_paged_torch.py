"""Gather through a block table, then attend: against attention written out, over shared, scattered and stale blocks."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import Tensor

from labllm.attention.paged_torch import GatherAttention, gather, key_slots
from labllm.cache.paged import PagedCache
from labllm.cache.pool import BlockPool
from labllm.cache.step import Step
from labllm.cache.table import BlockTable, append_all

BATCHES = {  # tokens cached, new tokens, tokens of a beginning that all share
    "one token": ([0], [1], 0),
    "one prompt": ([0], [13], 0),
    "unequal prompts": ([0, 0, 0], [3, 9, 1], 0),
    "unequal decodes": ([12, 0, 31], [1, 1, 1], 0),
    "decodes that share a beginning": ([12, 9, 31], [1, 1, 1], 9),
    "chunks behind a shared beginning": ([11, 6], [5, 6], 6),
    "decodes before prefill": ([12, 5, 0, 8], [1, 1, 6, 4], 0),
}


def attend_plainly(q: Tensor, k: Tensor, v: Tensor, window: int | None) -> Tensor:
    """The last Tq queries [Tq, Hq, D] of one sequence over its keys [L, Hkv, D], by a mask over all of them."""
    k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], 1) for x in (k, v))
    behind = torch.arange(len(k) - len(q), len(k))[:, None] - torch.arange(len(k))
    hidden = (behind < 0) | (behind >= (window or len(k)))
    scores = torch.einsum("qhd,khd->hqk", q, k) * q.shape[-1] ** -0.5
    return torch.einsum("hqk,khd->qhd", scores.masked_fill(hidden, float("-inf")).softmax(-1), v)


def scattered(block_size: int) -> BlockPool:
    """A pool whose free line is in random order."""
    pool = BlockPool(200, block_size)
    pool.allocate(200)
    pool.free(torch.randperm(200).tolist())
    return pool


def filled(
    num_cached: list[int], num_new: list[int], shared: int, block_size: int
) -> tuple[PagedCache, list[BlockTable], Step, list[Tensor]]:
    """A float64 cache full of NaN but for what sequences have cached; tables, step, and all k and v [2, L, 2, 6]."""
    pool, start = scattered(block_size), torch.randn(2, shared, 2, 6, dtype=torch.float64)
    cache = PagedCache(2, 200, block_size, 2, 6, torch.float64)
    cache.pool.fill_(float("nan"))
    first = BlockTable(pool)
    if shared:
        cache.write(1, *start, torch.tensor(first.append(shared).slots))
    tables = [first, *(first.fork() for _ in num_new[1:])]
    rest = [torch.randn(2, c + n - shared, 2, 6, dtype=torch.float64) for c, n in zip(num_cached, num_new, strict=True)]
    for table, cached, kv in zip(tables, num_cached, rest, strict=True):
        if cached > shared:
            slots, copies = table.append(cached - shared)
            cache.copy_blocks(copies)
            cache.write(1, *kv[:, : cached - shared], torch.tensor(slots))
    cache.copy_blocks(append_all(tables, num_new).copies)
    step = Step.paged([t.blocks for t in tables], num_cached, num_new, block_size)
    return cache, tables, step, [torch.cat((start, kv), 1) for kv in rest]


@pytest.mark.parametrize("window", [None, 1, 4, 16])
@pytest.mark.parametrize("block_size", [1, 4, 16])
@pytest.mark.parametrize("batch", BATCHES)
def test_paged_attention(batch: str, block_size: int, window: int | None) -> None:
    torch.manual_seed(0)
    num_cached, num_new, shared = BATCHES[batch]
    cache, _, step, known = filled(num_cached, num_new, shared, block_size)
    q = torch.randn(step.num_tokens, 4, 6, dtype=torch.float64)
    k, v = torch.cat([kv[:, c:] for c, kv in zip(num_cached, known, strict=True)], 1)
    out = GatherAttention(cache)(q, k, v, 1, step, window)
    expected = [attend_plainly(x, *kv, window) for x, kv in zip(q.split(num_new), known, strict=True)]
    torch.testing.assert_close(out, torch.cat(expected))


@pytest.mark.parametrize("seq_lens", [[6, 0, 3], [0, 0]])
def test_padding_gives_zeros_and_a_table_past_the_length_is_never_read(seq_lens: list[int]) -> None:
    real = [max(n, 1) for n in seq_lens]
    cache, _, step, known = filled([n - 1 for n in real], [1] * len(real), 0, 2)
    needed = -(-torch.tensor(seq_lens)[:, None] // 2)
    padded = dataclasses.replace(
        step,
        seq_lens=torch.tensor(seq_lens, dtype=torch.int32),
        slot_mapping=step.slot_mapping.where(torch.tensor(seq_lens) > 0, -1),
        block_table=step.block_table.where(torch.arange(step.block_table.shape[1]) < needed, 10**6),
        host_lengths=(),
    )
    k, v = torch.cat([kv[:, -1:] for kv in known], 1)
    q = torch.randn(len(real), 4, 6, dtype=torch.float64)
    out = GatherAttention(cache)(q, k, v, 1, padded)
    for i, n in enumerate(seq_lens):
        expected = attend_plainly(q[i : i + 1], *known[i], None) if n else torch.zeros_like(q[i : i + 1])
        torch.testing.assert_close(out[i : i + 1], expected)


def test_a_second_step_is_planned_anew() -> None:
    cache, tables, step, known = filled([3, 6], [1, 1], 0, 4)
    attend, q = GatherAttention(cache), torch.randn(2, 4, 6, dtype=torch.float64)
    for _ in range(3):
        k, v = torch.cat([kv[:, -1:] for kv in known], 1)
        expected = [attend_plainly(x, *kv, None) for x, kv in zip(q.split(1), known, strict=True)]
        torch.testing.assert_close(attend(q, k, v, 1, step), torch.cat(expected))
        done = [table.num_tokens for table in tables]
        append_all(tables, [1, 1])
        step = Step.paged([table.blocks for table in tables], done, [1, 1], 4)
        known = [torch.cat((kv, torch.randn(2, 1, 2, 6, dtype=torch.float64)), 1) for kv in known]


def test_slots_by_hand() -> None:
    table, lens = torch.tensor([[7, 2, -1], [5, -1, -1]], dtype=torch.int32), torch.tensor([6, 3], dtype=torch.int32)
    assert key_slots(table, lens, 4, 0, 6).tolist() == [[28, 29, 30, 31, 8, 9], [20, 21, 22, 22, 22, 22]]
    assert key_slots(table, lens, 4, 4, 6).tolist() == [[8, 9], [22, 22]]
    cache = torch.arange(40.0).view(10, 4, 1, 1)
    assert gather(cache, torch.tensor([[28, 9]])).flatten().tolist() == [28, 9]


def test_steps_that_do_not_fit_are_refused() -> None:
    attend, q = GatherAttention(PagedCache(1, 4, 2, 2, 6)), torch.zeros(1, 2, 6)
    with pytest.raises(ValueError, match="room for 0"):
        attend(q, q, q, 0, Step.uncached([1]))
    for blocks in ([4], [-1]):
        with pytest.raises(ValueError, match="blocks 0 to 3"):
            attend(q, q, q, 0, Step.paged([[0, *blocks]], [2], [1], 2))
