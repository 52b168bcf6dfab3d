"""Three allocators on random traces, each slot counted one by one; and by hand, what tells them apart."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labllm.cache.allocators import Allocator, MaxLength, Paged, PowerOfTwo
from labllm.cache.invariants import check
from labllm.cache.replay import KINDS, Moment, Request, follow, kinds, shares
from labllm.cache.traces import TRACES

MAX_LEN = 16
MAKE: dict[str, Callable[[int], Allocator]] = {
    "max length": MaxLength,
    "power of two": PowerOfTwo,
    "paged, block size 1": lambda slots: Paged(slots, 1),
    "paged, block size 4": lambda slots: Paged(slots, 4, watermark=0.1),
}
REQUESTS = st.lists(st.builds(Request, st.integers(1, 8), st.integers(1, 8)), min_size=1, max_size=25)


def count_slots(requests: list[Request], allocator: Allocator, moment: Moment) -> dict[str, int]:
    """Slots by kind, from a list that has an entry for each slot. Raises AssertionError where a slot has two owners."""
    slots = ["free"] * allocator.num_slots
    for owner, used in moment.tokens.items():
        mine = [slot for start, size in allocator.spans(owner) for slot in range(start, start + size)]
        assert len(mine) == allocator.held(owner) >= used
        for place, slot in enumerate(mine):
            assert slots[slot] == "free", "a slot has two owners"
            kind = "tokens" if place < used else "for later" if place < requests[owner].total else "never used"
            slots[slot] = kind
    return {kind: slots.count(kind) for kind in KINDS}


@pytest.mark.parametrize("name", MAKE)
@settings(max_examples=40, deadline=None)
@given(requests=REQUESTS, slots=st.integers(20, 60))
def test_every_slot_is_counted_and_every_request_served(name: str, requests: list[Request], slots: int) -> None:
    allocator, before, again = MAKE[name](slots), dict[int, int](), 0
    have = [request.prompt for request in requests]
    for moment in follow(requests, allocator, lambda r: MAX_LEN):
        assert moment.slots == count_slots(requests, allocator, moment)
        spans = kinds(requests, allocator, moment.tokens)
        assert {kind: sum(size for _, size in spans[kind]) for kind in KINDS} == moment.slots
        tiles = sorted(span for found in spans.values() for span in found)
        assert [start for start, _ in tiles] == [sum(size for _, size in tiles[:i]) for i in range(len(tiles))]
        assert sum(map(moment.share, KINDS)) == pytest.approx(1)
        assert sorted(moment.line) == list(moment.line) and not set(moment.line) & set(moment.tokens)
        gave_up = {i for i, tokens in before.items() if i in moment.line or moment.tokens.get(i) == tokens}
        for owner, tokens in before.items():
            have[owner] = tokens + (owner not in gave_up)
        again += sum(before[owner] for owner in gave_up)
        assert moment.tokens == {owner: have[owner] for owner in moment.tokens}, "who gives up keeps its tokens"
        assert moment.recomputed == again
        assert moment.read == sum(have[owner] for owner in moment.tokens if owner not in before.keys() - gave_up)
        before = dict(moment.tokens)
        if isinstance(allocator, Paged):
            check(allocator.pool, allocator.tables.values())
    for owner, tokens in before.items():
        have[owner] = tokens + 1
    assert have == [request.total for request in requests]
    assert not again or name != "max length", "who reserves the longest never has to give up"
    assert kinds(requests, allocator, {})["free"] == ((0, slots),)


@pytest.mark.parametrize("name", MAKE)
def test_who_is_refused_holds_nothing(name: str) -> None:
    allocator = MAKE[name](40)
    for prompt_len, max_len in ((0, 8), (9, 8), (-1, 8), (0, 0)):
        with pytest.raises(ValueError, match=rf"1 to max_len = {max_len} tokens; 'a' has {prompt_len}"):
            allocator.admit("a", prompt_len, max_len)
    assert allocator.admit("a", 8, 8)
    held, spans = allocator.held("a"), allocator.spans("a")
    with pytest.raises(ValueError, match="'a' has a place already"):
        allocator.admit("a", 3, 8)
    assert (allocator.held("a"), allocator.spans("a")) == (held, spans)
    allocator.finish("a")
    assert allocator.admit("b", 32, 32), "all slots are free again"


def replayed(allocator: Allocator, requests: list[Request]) -> list[Moment]:
    return list(follow(requests, allocator, lambda r: MAX_LEN))


def test_by_hand() -> None:
    requests = [Request(3, 4), Request(2, 2), Request(5, 1)]
    first = {name: replayed(make(32), requests)[0].slots for name, make in MAKE.items()}
    assert first["max length"] == {"tokens": 5, "for later": 6, "never used": 21, "free": 0}
    assert first["power of two"] == {"tokens": 10, "for later": 2, "never used": 2, "free": 18}
    assert first["paged, block size 4"] == {"tokens": 10, "for later": 4, "never used": 2, "free": 16}
    assert first["paged, block size 1"] == {"tokens": 10, "for later": 0, "never used": 0, "free": 22}


def test_who_cannot_grow_takes_the_place_of_the_youngest() -> None:
    moments = replayed(Paged(8, 1, watermark=0), [Request(3, 4), Request(3, 3), Request(1, 1)])
    seen = [(dict(m.tokens), m.line, m.read, m.recomputed) for m in moments]
    assert seen == [
        ({0: 3, 1: 3, 2: 1}, (), 7, 0),
        ({0: 4, 1: 4}, (2,), 0, 1),
        ({0: 5}, (1, 2), 0, 5),
        ({0: 6}, (1, 2), 0, 5),
        ({1: 4, 2: 1}, (), 5, 5),
        ({1: 5}, (), 0, 5),
    ]


def test_nobody_comes_in_between_a_preemption_and_the_next_end() -> None:
    moments = replayed(Paged(8, 1, watermark=0), [Request(2, 4), Request(5, 2)])
    assert [dict(m.tokens) for m in moments] == [{0: 2, 1: 5}, {0: 3}, {0: 4}, {0: 5}, {1: 5}, {1: 6}]


def test_a_watermark_keeps_blocks_for_growth_but_not_from_the_only_sequence() -> None:
    paged = Paged(40, 4, watermark=0.2)
    assert not paged.admit("too large", 41, 99) and paged.admit("whole pool", 40, 99)
    paged.finish("whole pool")
    assert paged.admit("first", 24, 99)
    assert not paged.admit("second", 9, 99) and paged.admit("second", 8, 99)
    assert paged.held("second") == 8 and paged.pool.num_free == 2


@pytest.mark.parametrize("name", MAKE)
def test_what_does_not_fit_even_alone_is_refused(name: str) -> None:
    for request in (Request(12, 1), Request(3, 10)):
        with pytest.raises(ValueError, match="13 tokens does not fit 8 slots"):
            replayed(MAKE[name](8), [request])


@pytest.mark.parametrize("block_size", [0, 9])
def test_a_paged_allocator_needs_a_block(block_size: int) -> None:
    with pytest.raises(ValueError, match=f"1 .. 8, the slots that there are; got {block_size}"):
        Paged(8, block_size)


@pytest.mark.parametrize("trace", TRACES)
def test_paging_wastes_little_where_reserving_wastes_most(trace: str) -> None:
    requests = TRACES[trace](256, 64, 512, 0)
    moments = {
        name: list(follow(requests, allocator, lambda r: 512))
        for name, allocator in (
            ("max length", MaxLength(4096)),
            ("power of two", PowerOfTwo(4096)),
            ("paged", Paged(4096, 8)),
        )
    }
    waste = {name: 1 - shares(found)["tokens"] for name, found in moments.items()}
    assert waste["paged"] < 0.1 < 0.2 < waste["power of two"] < 0.5 < waste["max length"]
    assert len(moments["paged"]) < len(moments["power of two"]) < len(moments["max length"]), "steps to serve them all"
