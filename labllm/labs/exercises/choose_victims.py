"""Lab 11: who gives up seat and blocks so that a running request can take its next block.

Teaches that the last in the order of the policy goes first, that this may be whoever asks, and that a request whose
blocks are shared gives nothing by going.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Generator

from labllm.labs.exercise import Case, Exercise, Mistake

Numbers = list[int]


def reference(keys: list[float], gives: Numbers, asks: int, free: int) -> Numbers:
    """Requests that are set back, in this order."""
    return _set_back(sorted(range(len(keys)), key=lambda i: (keys[i], i)), gives, asks, free)


def _set_back(order: Numbers, gives: Numbers, asks: int, free: int) -> Numbers:
    """From the end of `order`, until a block is free or the one who asks has gone."""
    victims: Numbers = []
    while not free and order:
        victims.append(order.pop())
        if victims[-1] == asks:
            break
        free += gives[victims[-1]]
    return victims


def _ordered_by(key: Callable[[list[float], Numbers, int], object]) -> Callable[..., Numbers]:
    def wrong(keys: list[float], gives: Numbers, asks: int, free: int) -> Numbers:
        order = sorted(range(len(keys)), key=lambda i: key(keys, gives, i))
        return _set_back(order, gives, asks, free)

    return wrong


_oldest = _ordered_by(lambda keys, gives, i: (-keys[i], -i))
_most_blocks = _ordered_by(lambda keys, gives, i: (gives[i], i))
_cheapest = _ordered_by(lambda keys, gives, i: (-gives[i], i))
_last_in_list = _ordered_by(lambda keys, gives, i: i)
_first_of_equals = _ordered_by(lambda keys, gives, i: (keys[i], -i))


def _never_itself(keys: list[float], gives: Numbers, asks: int, free: int) -> Numbers:
    order = sorted((i for i in range(len(keys)) if i != asks), key=lambda i: (keys[i], i))
    return _set_back(order, gives, asks, free)


def _keeps_its_seat(keys: list[float], gives: Numbers, asks: int, free: int) -> Numbers:
    return [victim for victim in reference(keys, gives, asks, free) if victim != asks]


def _one(keys: list[float], gives: Numbers, asks: int, free: int) -> Numbers:
    return reference(keys, gives, asks, free)[:1]


def _always(keys: list[float], gives: Numbers, asks: int, free: int) -> Numbers:
    return reference(keys, gives, asks, free) or reference(keys, gives, asks, 0)[:1]


def _itself_unnoticed(keys: list[float], gives: Numbers, asks: int, free: int) -> Numbers:
    return _set_back(sorted(range(len(keys)), key=lambda i: (keys[i], i)), gives, -1, free)


def _case(name: str, keys: list[float], gives: Numbers, asks: int, free: int = 0) -> Case:
    def make_args(_: Generator) -> tuple[list[float], Numbers, int, int]:
        return list(keys), list(gives), asks, free

    return Case(name, make_args)


EXERCISE = Exercise(
    name="choose_victims",
    lab=11,
    title="Who is set back so that one running request can take a block.",
    signature="choose_victims(keys: list[float], gives: list[int], asks: int, free: int) -> list[int]",
    shapes="""
keys     for each running request the policy's number, its arrival under fcfs: the smallest is served first,
         of equal ones the one that stands first in the list
gives    for each, the blocks that become free if it goes: those that no other table names
asks     the index of the request that needs one more block
free     blocks that are free now
returns  indices of the requests that are set back, in this order""",
    formula="""
while no block is free: the last in the order of the policy goes
if that is the request that asks, it goes too, and needs no block any more""",
    reference=reference,
    library="labllm.serving.schedulers.continuous.ContinuousScheduler",
    cases=(
        _case("three came one after the other, the first asks", [0.0, 1.0, 2.0], [3, 3, 3], 0),
        _case("the last one asks", [0.0, 1.0, 2.0], [4, 2, 3], 2),
        _case("a block is free", [0.0, 1.0], [3, 3], 0, 2),
        _case("not in the order of the list", [5.0, 0.5, 3.0, 1.0], [2, 6, 4, 1], 1),
        _case("the last one shares all its blocks", [0.0, 1.0, 2.0, 3.0], [3, 2, 4, 0], 0),
        _case("nobody gives a block before the one who asks", [0.0, 1.0, 2.0, 3.0], [3, 0, 0, 0], 1),
        _case("two came at once", [0.0, 2.0, 2.0], [3, 1, 1], 0),
        _case("a large one in the middle", [0.0, 1.0, 2.0, 3.0], [2, 9, 3, 1], 0),
    ),
    hints=(
        "Sort the indices: sorted(range(len(keys)), key=lambda i: (keys[i], i)). Who stands at the end?",
        "A victim may give nothing (its blocks are shared), so this is a loop: while free == 0.",
        "If the one that was just set back is `asks`, stop: nobody before it may suffer for it.",
    ),
    mistakes=(
        Mistake(
            "It sets back who was first. The first of all must always get on; otherwise everybody may be set back "
            "for ever.",
            _oldest,
        ),
        Mistake(
            "It takes the one with most blocks: fewest preemptions now, but the longest answer, nearly done, is lost "
            "again and again.",
            _most_blocks,
        ),
        Mistake("It takes the one with fewest blocks: cheap to read again, and it may be the first of all.", _cheapest),
        Mistake("It takes the last of the list; the order of the policy is that of `keys`.", _last_in_list),
        Mistake("Of two with equal keys it sets back the first one.", _first_of_equals),
        Mistake("It spares the one who asks, and sets back somebody who stands before it in the line.", _never_itself),
        Mistake(
            "The one who asks keeps its seat when its turn has come: it has no block to go on, so it goes as well.",
            _keeps_its_seat,
        ),
        Mistake("It sets back one and stops, although that one's blocks are shared and none became free.", _one),
        Mistake("It sets somebody back although a block is free.", _always),
        Mistake("It goes on after the one who asks has gone: who has no seat needs no block.", _itself_unnoticed),
    ),
)
