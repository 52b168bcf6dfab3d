"""Lab 04: the bytes that a chain of launches moves, and those that are left when it is one launch.

Teaches what fusion can save before a line of a kernel is written: intermediates vanish, inputs and kept results stay.
"""

from __future__ import annotations

from labllm.fusion.traffic import chain_bytes
from labllm.labs.exercise import Case, Exercise, Mistake

Launches = list[tuple[list[str], list[str]]]
Sizes = dict[str, int]
Answer = tuple[int, int]


def reference(launches: Launches, size: Sizes, kept: list[str]) -> Answer:
    """(before, after) in bytes."""
    return chain_bytes(launches, size, kept)


def _read(launches: Launches) -> set[str]:
    return {name for reads, _ in launches for name in reads}


def _made(launches: Launches) -> set[str]:
    return {name for _, writes in launches for name in writes}


def _each_tensor_once(launches: Launches, size: Sizes, kept: list[str]) -> Answer:
    before = sum(size[name] for name in _read(launches) | _made(launches))
    return before, chain_bytes(launches, size, kept)[1]


def _reads_only(launches: Launches, size: Sizes, kept: list[str]) -> Answer:
    before = sum(size[name] for reads, _ in launches for name in reads)
    return before, chain_bytes(launches, size, kept)[1]


def _writes_only(launches: Launches, size: Sizes, kept: list[str]) -> Answer:
    before = sum(size[name] for _, writes in launches for name in writes)
    return before, chain_bytes(launches, size, kept)[1]


def _intermediates_stay(launches: Launches, size: Sizes, kept: list[str]) -> Answer:
    after = sum(size[name] for name in _read(launches) | _made(launches))
    return chain_bytes(launches, size, kept)[0], after


def _read_by_each(launches: Launches, size: Sizes, kept: list[str]) -> Answer:
    outside = [name for reads, _ in launches for name in reads if name not in _made(launches)]
    return chain_bytes(launches, size, kept)[0], sum(size[name] for name in [*outside, *kept])


def _last_result_only(launches: Launches, size: Sizes, kept: list[str]) -> Answer:
    outside = _read(launches) - _made(launches)
    return chain_bytes(launches, size, kept)[0], sum(size[name] for name in [*outside, *launches[-1][1]])


def _nothing_written(launches: Launches, size: Sizes, kept: list[str]) -> Answer:
    return chain_bytes(launches, size, kept)[0], sum(size[name] for name in _read(launches) - _made(launches))


def _kept_read_again(launches: Launches, size: Sizes, kept: list[str]) -> Answer:
    before, after = chain_bytes(launches, size, kept)
    return before, after + sum(size[name] for name in kept if name in _read(launches))


def _first_launch_only(launches: Launches, size: Sizes, kept: list[str]) -> Answer:
    return chain_bytes(launches, size, kept)[0], sum(size[name] for name in [*launches[0][0], *kept])


def _swapped(launches: Launches, size: Sizes, kept: list[str]) -> Answer:
    before, after = chain_bytes(launches, size, kept)
    return after, before


EXERCISE = Exercise(
    name="fusion_bytes",
    lab=4,
    title="The bytes that a chain of launches moves, before and after it becomes one launch.",
    signature=(
        "fusion_bytes(launches: list[tuple[list[str], list[str]]], size: dict[str, int], kept: list[str])"
        " -> tuple[int, int]"
    ),
    shapes="""
launches  in order, each (names of the tensors that it reads, names of those that it writes)
size      bytes of each tensor, by name
kept      names of what the launches write that later code needs; the rest is forgotten
returns (before, after)""",
    formula="""
before: every launch reads all that it reads and writes all that it writes
after: what no launch makes is read, what is kept is written, each once; all else stays on the chip""",
    reference=reference,
    library="labllm.fusion.traffic.chain_bytes",
    parts=("before", "after"),
    cases=(
        Case(
            "one launch: nothing to fuse",
            lambda g: ([(["x", "residual"], ["total"])], {"x": 8, "residual": 8, "total": 8}, ["total"]),
        ),
        Case(
            "a product, then a square: the product is forgotten",
            lambda g: (
                [(["x", "y"], ["product"]), (["product"], ["out"])],
                {"x": 16, "y": 16, "product": 16, "out": 16},
                ["out"],
            ),
        ),
        Case(
            "add, then norm: both results are kept",
            lambda g: (
                [(["x", "residual"], ["total"]), (["total", "weight"], ["out"])],
                {"x": 800, "residual": 800, "total": 800, "weight": 20, "out": 800},
                ["total", "out"],
            ),
        ),
        Case(
            "three launches, and two of them read x",
            lambda g: (
                [(["x"], ["mean"]), (["x", "mean"], ["centred"]), (["centred", "weight"], ["out"])],
                {"x": 4096, "mean": 4, "centred": 4096, "weight": 512, "out": 2048},
                ["out"],
            ),
        ),
    ),
    hints=(
        "before is a plain sum over launches: the sizes of all names that it reads and of all that it writes.",
        "Collect two sets: all names that some launch reads, and all names that some launch writes.",
        "What is read and never written comes from outside: in one launch it is read once, however often it is used.",
        "Of what is written only `kept` still goes to memory, and nobody reads it back within the launch.",
    ),
    mistakes=(
        Mistake("before counts each tensor once; what is made and used crosses twice.", _each_tensor_once),
        Mistake("before counts only what is read; each result is written, too.", _reads_only),
        Mistake("before counts only what is written; each operand is read, too.", _writes_only),
        Mistake("after still counts what is made and forgotten: that never leaves the chip.", _intermediates_stay),
        Mistake("after reads an input once for each launch that used it; one launch reads it once.", _read_by_each),
        Mistake("after writes the last result alone; `kept` says what later code needs.", _last_result_only),
        Mistake("after writes nothing; what is kept has to reach memory.", _nothing_written),
        Mistake("after reads kept results back; in one launch they are still on the chip.", _kept_read_again),
        Mistake("after reads only the first launch's operands; later ones bring their own.", _first_launch_only),
        Mistake("The two numbers are exchanged: before comes first.", _swapped),
    ),
)
