"""Lab 11: find the blocks of the cache that hold the beginning of a prompt, by a chain of hashes.

Teaches why a block's name covers everything before it, why only full blocks have one, and why a prompt that is known
entirely still has a token to compute.
"""

from __future__ import annotations

from collections.abc import Iterator

from torch import Generator

from labllm.labs.exercise import Case, Exercise, Mistake

Ids = list[int]
Names = dict[int, int]


def chain(ids: Ids, block_size: int) -> Iterator[int]:
    """The names of all full blocks of `ids`."""
    name = 0
    for start in range(0, len(ids) - block_size + 1, block_size):
        name = hash((name, *ids[start : start + block_size]))
        yield name


def reference(ids: Ids, block_size: int, known: Names) -> list[int]:
    """Blocks of the longest known run, at most (len(ids) - 1) // block_size of them."""
    return _run(list(chain(ids, block_size))[: (len(ids) - 1) // block_size], known)


def _run(names: list[int], known: Names) -> list[int]:
    found = []
    for name in names:
        if name not in known:
            break
        found.append(known[name])
    return found


def _all_of_it(ids: Ids, block_size: int, known: Names) -> list[int]:
    return _run(list(chain(ids, block_size)), known)


def _not_chained(ids: Ids, block_size: int, known: Names) -> list[int]:
    names = [hash((0, *ids[s : s + block_size])) for s in range(0, len(ids) - block_size + 1, block_size)]
    return _run(names[: (len(ids) - 1) // block_size], known)


def _past_a_gap(ids: Ids, block_size: int, known: Names) -> list[int]:
    names = list(chain(ids, block_size))[: (len(ids) - 1) // block_size]
    return [known[name] for name in names if name in known]


def _part_too(ids: Ids, block_size: int, known: Names) -> list[int]:
    name, names = 0, []
    for start in range(0, len(ids), block_size):
        name = hash((name, *ids[start : start + block_size]))
        names.append(name)
    return _run(names, known)


def _one_less(ids: Ids, block_size: int, known: Names) -> list[int]:
    return reference(ids, block_size, known)[: max(0, len(ids) // block_size - 1)]


def _names_back(ids: Ids, block_size: int, known: Names) -> list[int]:
    names = list(chain(ids, block_size))[: (len(ids) - 1) // block_size]
    return names[: len(_run(names, known))]


def _named_otherwise(ids: Ids, block_size: int, known: Names) -> list[int]:
    name, names = 0, []
    for block in range((len(ids) - 1) // block_size):
        name = hash((name, tuple(ids[block * block_size : (block + 1) * block_size])))
        names.append(name)
    return _run(names, known)


def _all_or_nothing(ids: Ids, block_size: int, known: Names) -> list[int]:
    names = list(chain(ids, block_size))[: (len(ids) - 1) // block_size]
    found = _run(names, known)
    return found if len(found) == len(names) else []


def _case(name: str, ids: Ids, size: int, *stored: tuple[Ids, list[int]], forgotten: tuple[int, ...] = ()) -> Case:
    """`stored` are earlier texts with the blocks that hold them; blocks in `forgotten` were allocated anew since."""

    def make_args(_: Generator) -> tuple[Ids, int, Names]:
        known: Names = {}
        for text, blocks in stored:
            for full, block in zip(chain(text, size), blocks, strict=True):
                known.setdefault(full, block)
        return list(ids), size, {full: block for full, block in known.items() if block not in forgotten}

    return Case(name, make_args)


TEXT = [5, 3, 8, 1, 9, 2, 7, 7, 4, 6, 1, 2]
AGAIN = [5, 3, 8, 1, 5, 3, 8, 1, 5, 3]

EXERCISE = Exercise(
    name="prefix_blocks",
    lab=11,
    title="The blocks of the cache that hold a prompt's beginning.",
    signature="prefix_blocks(ids: list[int], block_size: int, known: dict[int, int]) -> list[int]",
    shapes="""
ids      the token ids of a prompt, at least one
known    from names of full blocks to block numbers: what the cache holds
returns  the numbers of the blocks that need not be computed again, from the first on""",
    formula="""
the name of a full block:  name = hash((name of the block before, *its ids)), with 0 before the first
a run ends at the first name that is not known; at least one token of the prompt is left to compute""",
    reference=reference,
    library="labllm.cache.prefix.PrefixPool.find",
    cases=(
        _case("two of three blocks are known", TEXT, 4, ([*TEXT[:8], 0, 0, 0, 0], [6, 2, 9])),
        _case("the whole prompt is known", TEXT, 4, (TEXT, [6, 2, 9])),
        _case("nothing is known", TEXT, 4),
        _case("the same four ids, twice", AGAIN, 4, (AGAIN[:4], [3])),
        _case("the second block was forgotten", [*TEXT, 0], 4, (TEXT, [6, 2, 9]), forgotten=(2,)),
        _case("a prompt of 11 ids", TEXT[:11], 4, (TEXT, [6, 2, 9])),
        _case("shorter than a block", TEXT[:3], 4, (TEXT, [6, 2, 9])),
        _case("blocks of 1", TEXT[:6], 1, (TEXT, list(range(12)))),
        _case(
            "two texts that part after the first block",
            [*TEXT[:4], 7, 7, 7, 7, 1],
            4,
            (TEXT, [6, 2, 9]),
            ([*TEXT[:4], 7, 7, 7, 7], [1, 4]),
        ),
    ),
    hints=(
        "By hand, with blocks of 4: which ids are in block 0, which in block 1? On what does the name of block 1 "
        "depend?",
        "Keep `name` from one turn of the loop to the next: name = hash((name, *ids[start : start + block_size])).",
        "The logits of the last token give the next one, so that token is computed in any case: at most "
        "(len(ids) - 1) // block_size blocks may be found.",
    ),
    mistakes=(
        Mistake(
            "It finds the whole prompt and leaves no token to compute; without a last token there are no logits.",
            _all_of_it,
            also=(_part_too,),
        ),
        Mistake(
            "The names are not chained: equal ids at another place, behind other text, have other keys and values.",
            _not_chained,
        ),
        Mistake("It goes on behind a block that is not known; what it finds there has a hole before it.", _past_a_gap),
        Mistake(
            "It finds one block too few when the prompt does not end with a full block.",
            _one_less,
        ),
        Mistake("It returns names; a block table holds the numbers that the names lead to.", _names_back),
        Mistake(
            "None of its names is known: hash one tuple, the name before first and then the ids one by one: "
            "hash((name, *ids)).",
            _named_otherwise,
        ),
        Mistake("It wants the whole beginning or nothing; every known block saves work.", _all_or_nothing),
    ),
)
