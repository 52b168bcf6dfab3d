"""Lab 03: make room for further tokens of a sequence, by naming free blocks in its table.

Teaches that a table grows by whole blocks and only when the last one is full, and that what cannot be done entirely is
not begun: half an allocation would be lost to everybody.
"""

from __future__ import annotations

from torch import Generator

from labllm.labs.exercise import Case, Exercise, Mistake

Numbers = list[int]


def reference(blocks: Numbers, num_tokens: int, num_new: int, free_blocks: Numbers, block_size: int) -> None:
    """Moves as many blocks from the head of free_blocks to the end of blocks as num_new further tokens need."""
    _take(blocks, -(-(num_tokens + num_new) // block_size) - len(blocks), free_blocks)


def _take(blocks: Numbers, count: int, free_blocks: Numbers) -> None:
    if count <= len(free_blocks):
        blocks += free_blocks[:count]
        del free_blocks[:count]


def _rounded_down(blocks: Numbers, num_tokens: int, num_new: int, free_blocks: Numbers, block_size: int) -> None:
    _take(blocks, (num_tokens + num_new) // block_size - len(blocks), free_blocks)


def _one_too_early(blocks: Numbers, num_tokens: int, num_new: int, free_blocks: Numbers, block_size: int) -> None:
    _take(blocks, (num_tokens + num_new) // block_size + 1 - len(blocks), free_blocks)


def _new_tokens_alone(blocks: Numbers, num_tokens: int, num_new: int, free_blocks: Numbers, block_size: int) -> None:
    _take(blocks, -(-num_new // block_size), free_blocks)


def _one_block(blocks: Numbers, num_tokens: int, num_new: int, free_blocks: Numbers, block_size: int) -> None:
    _take(blocks, int(num_tokens % block_size == 0), free_blocks)


def _from_the_end(blocks: Numbers, num_tokens: int, num_new: int, free_blocks: Numbers, block_size: int) -> None:
    count = -(-(num_tokens + num_new) // block_size) - len(blocks)
    if count <= len(free_blocks):
        blocks += [free_blocks.pop() for _ in range(count)]


def _stays_free(blocks: Numbers, num_tokens: int, num_new: int, free_blocks: Numbers, block_size: int) -> None:
    _take(blocks, -(-(num_tokens + num_new) // block_size) - len(blocks), list(free_blocks))


def _as_far_as_it_goes(blocks: Numbers, num_tokens: int, num_new: int, free_blocks: Numbers, block_size: int) -> None:
    count = -(-(num_tokens + num_new) // block_size) - len(blocks)
    _take(blocks, min(count, len(free_blocks)), free_blocks)


def _case(name: str, held: Numbers, num_tokens: int, num_new: int, free: Numbers, block_size: int = 4) -> Case:
    def make_args(_: Generator) -> tuple[Numbers, int, int, Numbers, int]:
        return held, num_tokens, num_new, free, block_size

    return Case(name, make_args)


EXERCISE = Exercise(
    name="allocate_append",
    lab=3,
    title="Make room for num_new further tokens of a sequence, in place.",
    signature=(
        "allocate_append(blocks: list[int], num_tokens: int, num_new: int, "
        "free_blocks: list[int], block_size: int) -> None"
    ),
    shapes="""
blocks       the sequence's block table, changed in place: just the blocks that its num_tokens tokens need
num_new      tokens to make room for, at least 1
free_blocks  the free line, changed in place: the first is taken first
returns nothing; if fewer blocks are free than are needed, nothing changes""",
    formula="n tokens need ceil(n / block_size) blocks, the num_tokens that are there included",
    reference=reference,
    library="labllm.cache.table.BlockTable.append",
    in_place=(0, 3),
    cases=(
        _case("6 tokens arrive", [], 0, 6, [5, 2, 7]),
        _case("a token into a block with room", [5, 2], 6, 1, [7, 1]),
        _case("a token that just fills the last block", [5, 2], 7, 1, [7, 1]),
        _case("a token behind a full block", [5, 2], 8, 1, [7, 1]),
        _case("9 tokens behind 6", [5, 2], 6, 9, [7, 1, 3]),
        _case("too few blocks are free", [5, 2], 6, 9, [7]),
        _case("blocks of 1", [4, 0], 2, 3, [9, 8, 6, 1], 1),
    ),
    hints=(
        "How many blocks do num_tokens + num_new tokens need, and how many has the table already? Take the difference.",
        "Rounding up in whole numbers: -(-n // block_size). With 8 tokens and blocks of 4 it must give 2, not 3.",
        "Compare with len(free_blocks) before you take the first block; list.pop(0) takes the head of a list.",
    ),
    mistakes=(
        Mistake(
            "It rounds down: a block that is filled in part is a block too (ceil, not //).",
            _rounded_down,
        ),
        Mistake(
            "It takes a block too early: a last block that is just full needs no successor yet.",
            _one_too_early,
        ),
        Mistake(
            "It counts blocks for the new tokens alone, and leaves the room in the last block unused.",
            _new_tokens_alone,
        ),
        Mistake("It takes one block at most; many new tokens need several.", _one_block),
        Mistake("It takes blocks from the end of the free line instead of its head.", _from_the_end),
        Mistake("The blocks stay in the free line, so that another sequence will take them too.", _stays_free),
        Mistake(
            "It takes what is there although that is too little: all blocks that are needed, or none.",
            _as_far_as_it_goes,
        ),
    ),
)
