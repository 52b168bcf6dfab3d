"""Lab 03: keys of each sequence side by side, copied together through its block table.

Teaches what a block table means to attention, and what is paid where no kernel reads pages in place: a copy of all that
is read.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from labllm.attention.paged_torch import gather, key_slots
from labllm.bench import Rung
from labllm.labs.exercise import Case, Exercise, Function, Mistake


def reference(cache: Tensor, block_table: Tensor, seq_lens: Tensor) -> Tensor:
    """cache [num_blocks, block_size, Hkv, D] -> [B, max(seq_lens), Hkv, D], zeros past each length."""
    longest = int(seq_lens.max())
    gathered = gather(cache, key_slots(block_table, seq_lens, cache.shape[1], 0, longest))
    return gathered.masked_fill(_past(seq_lens, longest), 0)


def _past(seq_lens: Tensor, longest: int) -> Tensor:
    return (torch.arange(longest, device=seq_lens.device) >= seq_lens[:, None])[:, :, None, None]


def _padding_kept(cache: Tensor, block_table: Tensor, seq_lens: Tensor) -> Tensor:
    return cache[block_table.long()].flatten(1, 2)[:, : int(seq_lens.max())]


def _no_table(cache: Tensor, block_table: Tensor, seq_lens: Tensor) -> Tensor:
    contiguous = torch.arange(block_table.numel()).view_as(block_table) % len(cache)
    return reference(cache, contiguous, seq_lens)


def _one_key_a_block(cache: Tensor, block_table: Tensor, seq_lens: Tensor) -> Tensor:
    return cache[block_table.clamp_min(0).long(), 0]


def _sorted_blocks(cache: Tensor, block_table: Tensor, seq_lens: Tensor) -> Tensor:
    needed = (seq_lens[:, None] + cache.shape[1] - 1) // cache.shape[1]
    mine = torch.arange(block_table.shape[1]) < needed
    order = block_table.masked_fill(~mine, len(cache)).sort(dim=1).values
    return reference(cache, order.clamp_max(len(cache) - 1), seq_lens)


def _last_key_missing(cache: Tensor, block_table: Tensor, seq_lens: Tensor) -> Tensor:
    right = reference(cache, block_table, seq_lens)
    return right.masked_fill(_past(seq_lens - 1, right.shape[1]), 0)


def _cut_to_the_shortest(cache: Tensor, block_table: Tensor, seq_lens: Tensor) -> Tensor:
    return reference(cache, block_table, seq_lens)[:, : int(seq_lens.min())]


def _whole_blocks(cache: Tensor, block_table: Tensor, seq_lens: Tensor) -> Tensor:
    room = block_table.shape[1] * cache.shape[1]
    gathered = cache[block_table.clamp_min(0).long()].flatten(1, 2)
    return gathered.masked_fill(_past(seq_lens, room), 0)


def _case(name: str, block_size: int, *lengths: int, heads: int = 2, dim: int = 4) -> Case:
    return Case(name, lambda g: _draw(g, block_size, lengths, heads, dim))


def _draw(
    generator: Generator, block_size: int, lengths: tuple[int, ...], heads: int, dim: int
) -> tuple[Tensor, Tensor, Tensor]:
    counts = [-(-n // block_size) for n in lengths]
    blocks = torch.randperm(sum(counts) + 2, generator=generator).int()
    table = torch.full((len(lengths), max(counts) + 1), -1, dtype=torch.int32)
    for row, mine in zip(table, blocks[: sum(counts)].split(counts), strict=True):
        row[: len(mine)] = mine
    cache = torch.randn(len(blocks), block_size, heads, dim, generator=generator)
    return cache, table, torch.tensor(lengths, dtype=torch.int32)


def as_rung(gather_blocks: Function) -> Rung:
    """Gather with the learner's function, then attend, for `labllm.attention.paged_ladder.PAGED_DECODE`."""

    def run(inputs: Any) -> Tensor:
        q, k_cache, v_cache, table, lens = inputs
        k, v = (gather_blocks(cache, table, lens).transpose(1, 2) for cache in (k_cache, v_cache))
        seen = (torch.arange(k.shape[2], device=q.device) < lens[:, None])[:, None, None]
        rows = q.reshape(len(q), k.shape[1], -1, q.shape[2])
        return F.scaled_dot_product_attention(rows, k, v, attn_mask=seen).reshape(q.shape)

    return Rung("yours", run, about="your gather, then dense attention", sources=(gather_blocks,))


EXERCISE = Exercise(
    name="gather_blocks",
    lab=3,
    title="Keys (or values) of each sequence side by side, copied through its block table.",
    signature="gather_blocks(cache: torch.Tensor, block_table: torch.Tensor, seq_lens: torch.Tensor) -> torch.Tensor",
    shapes="""
cache        [num_blocks, block_size, Hkv, D]: all blocks of one layer
block_table  [B, max_blocks] int32: blocks of each sequence, in order; what stands past its length means nothing
seq_lens     [B] int32: tokens of each sequence, at least 1
returns      [B, max(seq_lens), Hkv, D]: zeros past each sequence's length""",
    formula="out[b, p] = cache[block_table[b, p // block_size], p % block_size]   for p < seq_lens[b]",
    reference=reference,
    library="labllm.attention.paged_torch.gather",
    timed=True,
    as_rung=as_rung,
    cases=(
        _case("one sequence of two full blocks", 4, 8),
        _case("a last block that is filled in part", 4, 6),
        _case("two sequences of different length", 4, 9, 3),
        _case("blocks of 1", 1, 3, 5),
        _case("a sequence of one token beside a long one", 4, 1, 17),
        _case("a batch of 16, blocks of 16", 16, *range(5, 245, 15), heads=4, dim=32),
    ),
    hints=(
        "Indexing with a tensor does the work: cache[blocks] with blocks [n] gives [n, block_size, Hkv, D].",
        "Blocks of one sequence stand side by side after flatten(0, 1); the first seq_lens[b] rows are its keys.",
        "Start from cache.new_zeros(B, longest, Hkv, D), and fill out[b, :n] for each sequence; use only the first "
        "ceil(n / block_size) entries of its table.",
    ),
    mistakes=(
        Mistake(
            "It keeps what stands in the last block past the length, or in a block that the table does not mean: zeros "
            "belong there.",
            _padding_kept,
        ),
        Mistake("It reads blocks 0, 1, 2, ...: the block table is not used.", _no_table),
        Mistake("It takes one key a block; a block holds block_size of them.", _one_key_a_block),
        Mistake("It sorts the blocks; the order in the table is the order of the tokens.", _sorted_blocks),
        Mistake("The last key is missing: a sequence of n tokens has positions 0 to n - 1.", _last_key_missing),
        Mistake("It is cut to the shortest sequence; the longest decides.", _cut_to_the_shortest),
        Mistake("It is as long as the table's room; the longest sequence decides.", _whole_blocks),
    ),
)
