"""Lab 03: the flat cache slot of each new token of a packed batch.

Teaches the address arithmetic of paging, position -> (block, offset) -> slot, and that new tokens stand behind the
cached ones of their own sequence.
"""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from labllm.labs.exercise import Case, Exercise, Mistake


def reference(block_table: Tensor, seq_lens: Tensor, query_lens: Tensor, block_size: int) -> Tensor:
    """block_table [B, max_blocks] int32, seq_lens and query_lens [B] -> [T] int64, packed."""
    rows, positions = _new(seq_lens, query_lens)
    return block_table[rows, positions // block_size].long() * block_size + positions % block_size


def _new(seq_lens: Tensor, query_lens: Tensor) -> tuple[Tensor, Tensor]:
    """Sequence and position of every new token, [T] each."""
    pairs = [
        (b, p)
        for b, (total, new) in enumerate(zip(seq_lens.tolist(), query_lens.tolist(), strict=True))
        for p in range(total - new, total)
    ]
    rows, positions = zip(*pairs, strict=True)
    return torch.tensor(rows), torch.tensor(positions)


def _from_zero(block_table: Tensor, seq_lens: Tensor, query_lens: Tensor, block_size: int) -> Tensor:
    return reference(block_table, query_lens, query_lens, block_size)


def _no_table(block_table: Tensor, seq_lens: Tensor, query_lens: Tensor, block_size: int) -> Tensor:
    return _new(seq_lens, query_lens)[1]


def _block_not_scaled(block_table: Tensor, seq_lens: Tensor, query_lens: Tensor, block_size: int) -> Tensor:
    rows, positions = _new(seq_lens, query_lens)
    return block_table[rows, positions // block_size].long() + positions % block_size


def _no_offset(block_table: Tensor, seq_lens: Tensor, query_lens: Tensor, block_size: int) -> Tensor:
    rows, positions = _new(seq_lens, query_lens)
    return block_table[rows, positions // block_size].long() * block_size


def _one_further(block_table: Tensor, seq_lens: Tensor, query_lens: Tensor, block_size: int) -> Tensor:
    rows, positions = _new(seq_lens, query_lens)
    blocks = (positions + 1).clamp_max(block_table.shape[1] * block_size - 1) // block_size
    return block_table[rows, blocks].long() * block_size + (positions + 1) % block_size


def _first_table(block_table: Tensor, seq_lens: Tensor, query_lens: Tensor, block_size: int) -> Tensor:
    return reference(block_table[:1].expand_as(block_table), seq_lens, query_lens, block_size)


def _only_the_last(block_table: Tensor, seq_lens: Tensor, query_lens: Tensor, block_size: int) -> Tensor:
    return reference(block_table, seq_lens, torch.ones_like(query_lens), block_size)


def _case(name: str, block_size: int, *lengths: tuple[int, int]) -> Case:
    return Case(name, lambda g: _draw(g, block_size, lengths))


def _draw(
    generator: Generator, block_size: int, lengths: tuple[tuple[int, int], ...]
) -> tuple[Tensor, Tensor, Tensor, int]:
    """(seq_len, query_len) of each sequence; blocks in random order, unused entries of the table are -1."""
    counts = [-(-total // block_size) for total, _ in lengths]
    width = max(counts)
    blocks = torch.randperm(sum(counts) + 3, generator=generator).int()
    table = torch.full((len(lengths), width), -1, dtype=torch.int32)
    for row, count, start in zip(table, counts, torch.tensor([0, *counts]).cumsum(0).tolist(), strict=False):
        row[:count] = blocks[start : start + count]
    totals, new = (torch.tensor(numbers, dtype=torch.int32) for numbers in zip(*lengths, strict=True))
    return table, totals, new, block_size


EXERCISE = Exercise(
    name="slot_mapping",
    lab=3,
    title="The cache slot of each new token.",
    signature="""slot_mapping(
    block_table: torch.Tensor, seq_lens: torch.Tensor, query_lens: torch.Tensor, block_size: int
) -> torch.Tensor""",
    shapes="""
block_table  [B, max_blocks] int32: blocks of each sequence, in order; -1 where it has no further one
seq_lens     [B] int32: tokens of each sequence, this step's included
query_lens   [B] int32: this step's new tokens, the last of each sequence
returns      [T] int64: a slot for each new token, sequence after sequence""",
    formula="""
slot = block_table[b, p // block_size] * block_size + p % block_size
for p = seq_lens[b] - query_lens[b] ... seq_lens[b] - 1""",
    reference=reference,
    library="labllm.cache.step.Step.paged",
    cases=(
        _case("one sequence, a prompt of 6, blocks of 4", 4, (6, 6)),
        _case("decode: one new token for each of three", 4, (9, 1), (4, 1), (5, 1)),
        _case("a chunk of 5 behind 6 cached tokens", 4, (11, 5)),
        _case("a prompt, a chunk and a decode together", 4, (7, 7), (12, 3), (8, 1)),
        _case("blocks of 1", 1, (3, 1), (5, 2)),
        _case("a batch of 32, blocks of 16", 16, *((17 * i + 9, 1 + i % 3) for i in range(32))),
    ),
    hints=(
        "Do it by hand for a table [5, 2], blocks of 4 and position 6: which block holds it, at which offset?",
        "Loop over the sequences and over the positions of their new tokens; append one slot for each to a list.",
        "Entries of the table are numbers of blocks, and a block is block_size slots: multiply before adding the "
        "offset. torch.tensor(list_of_ints) is int64 already.",
    ),
    mistakes=(
        Mistake(
            "It counts positions from 0: the new tokens stand behind seq_lens - query_lens cached ones.", _from_zero
        ),
        Mistake("It gives positions, not slots: the block table is not used.", _no_table),
        Mistake(
            "The block's number is not multiplied by block_size: block 2 starts at slot 2 * block_size.",
            _block_not_scaled,
        ),
        Mistake("The offset within the block, p % block_size, is missing.", _no_offset),
        Mistake("It is one slot too far: the last token has position seq_lens - 1.", _one_further),
        Mistake("It uses the first sequence's table for all.", _first_table),
        Mistake("It gives one slot a sequence; a step may bring several tokens of one.", _only_the_last),
    ),
)
