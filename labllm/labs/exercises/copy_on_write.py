"""Lab 03: before a token is written, a block that others name too is left to them and copied.

Teaches when a copy is needed (a shared last block that is filled in part, and nothing else), and the three things that
it changes together: content, counts and table.
"""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from labllm.labs.exercise import Case, Exercise, Mistake

Numbers = list[int]


def reference(blocks: Numbers, num_tokens: int, ref_counts: Numbers, free_blocks: Numbers, cache: Tensor) -> None:
    """Makes the last of `blocks` the sequence's own where its next token would be written into a shared one."""
    if num_tokens % cache.shape[1] and ref_counts[blocks[-1]] > 1:
        _copy(blocks, ref_counts, free_blocks, cache)


def _copy(blocks: Numbers, ref_counts: Numbers, free_blocks: Numbers, cache: Tensor) -> None:
    old, new = blocks[-1], free_blocks.pop(0)
    cache[new] = cache[old]
    ref_counts[old] -= 1
    ref_counts[new] = 1
    blocks[-1] = new


def _content_left(blocks: Numbers, num_tokens: int, ref_counts: Numbers, free_blocks: Numbers, cache: Tensor) -> None:
    reference(blocks, num_tokens, ref_counts, free_blocks, cache.clone())


def _count_kept(blocks: Numbers, num_tokens: int, ref_counts: Numbers, free_blocks: Numbers, cache: Tensor) -> None:
    before, last = list(ref_counts), blocks[-1]
    reference(blocks, num_tokens, ref_counts, free_blocks, cache)
    ref_counts[last] = before[last]


def _new_not_counted(
    blocks: Numbers, num_tokens: int, ref_counts: Numbers, free_blocks: Numbers, cache: Tensor
) -> None:
    last = blocks[-1]
    reference(blocks, num_tokens, ref_counts, free_blocks, cache)
    if blocks[-1] != last:
        ref_counts[blocks[-1]] = 0


def _counts_kept(blocks: Numbers, num_tokens: int, ref_counts: Numbers, free_blocks: Numbers, cache: Tensor) -> None:
    reference(blocks, num_tokens, list(ref_counts), free_blocks, cache)


def _full_too(blocks: Numbers, num_tokens: int, ref_counts: Numbers, free_blocks: Numbers, cache: Tensor) -> None:
    if ref_counts[blocks[-1]] > 1:
        _copy(blocks, ref_counts, free_blocks, cache)


def _own_too(blocks: Numbers, num_tokens: int, ref_counts: Numbers, free_blocks: Numbers, cache: Tensor) -> None:
    if num_tokens % cache.shape[1]:
        _copy(blocks, ref_counts, free_blocks, cache)


def _table_kept(blocks: Numbers, num_tokens: int, ref_counts: Numbers, free_blocks: Numbers, cache: Tensor) -> None:
    reference(list(blocks), num_tokens, ref_counts, free_blocks, cache)


def _freed(blocks: Numbers, num_tokens: int, ref_counts: Numbers, free_blocks: Numbers, cache: Tensor) -> None:
    last = blocks[-1]
    reference(blocks, num_tokens, ref_counts, free_blocks, cache)
    if blocks[-1] != last:
        free_blocks.append(last)


def _case(name: str, blocks: Numbers, num_tokens: int, shared: dict[int, int], free: Numbers) -> Case:
    return Case(name, lambda g: _draw(g, blocks, num_tokens, shared, free))


def _draw(
    generator: Generator, blocks: Numbers, num_tokens: int, shared: dict[int, int], free: Numbers
) -> tuple[Numbers, int, Numbers, Numbers, Tensor]:
    """8 blocks of 4: those in `shared` have that count, free ones 0, all others 1."""
    counts = [shared.get(block, 0 if block in free else 1) for block in range(8)]
    return blocks, num_tokens, counts, free, torch.randn(8, 4, 2, 3, generator=generator)


EXERCISE = Exercise(
    name="copy_on_write",
    lab=3,
    title="Before the next token is written: leave a shared block to the others, and go on in a copy. In place.",
    signature="""copy_on_write(
    blocks: list[int], num_tokens: int, ref_counts: list[int], free_blocks: list[int], cache: torch.Tensor
) -> None""",
    shapes="""
blocks       the sequence's block table, for its num_tokens >= 1 tokens
ref_counts   of every block, the number of tables that name it
free_blocks  the free line; there is at least one block, and the first is taken
cache        [num_blocks, block_size, Hkv, D]: what the blocks hold
returns nothing: all four may change in place""",
    formula="""
only where token number num_tokens goes into a block that is there already, and another table names that block too:
copy its content to a new block, name the new one in its place, and correct both counts""",
    reference=reference,
    library="labllm.cache.table.BlockTable.append",
    in_place=(0, 2, 3, 4),
    cases=(
        _case("a shared block with room", [5, 2], 6, {5: 2, 2: 2}, [7, 1]),
        _case("a block of its own", [5, 2], 6, {5: 2}, [7, 1]),
        _case("a shared block that is full", [5, 2], 8, {5: 2, 2: 2}, [7, 1]),
        _case("three share it", [3], 1, {3: 3}, [0]),
        _case("one slot is left", [4, 6, 0], 11, {4: 2, 6: 2, 0: 2}, [1]),
    ),
    hints=(
        "Which blocks does the next token touch? Only the last one, and only if it has room: full blocks are never "
        "written again.",
        "A count of 1 means that nobody else looks at the block: then it may be written as it is.",
        "cache[new] = cache[old] copies a block. The old one loses a reference, the new one gets its first.",
    ),
    mistakes=(
        Mistake("The content is not copied: the new block is empty where the earlier tokens should be.", _content_left),
        Mistake("The old block's count is not lowered; it will never be free again.", _count_kept),
        Mistake("The new block's count stays 0; it would be taken for free.", _new_not_counted),
        Mistake(
            "Neither count is corrected: the old block loses a reference, the new one gets its first.", _counts_kept
        ),
        Mistake("It copies a full block: nobody writes there again, so it may stay shared.", _full_too),
        Mistake("It copies a block that nobody else names.", _own_too),
        Mistake("The table still names the old block, so the token is written into what others read.", _table_kept),
        Mistake("It frees the old block, although another sequence still reads it.", _freed),
    ),
)
