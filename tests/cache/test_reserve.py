"""The contiguous arena: spans and holes tile it, the first hole that fits is taken, and both kinds of waste add up."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labllm.cache.reserve import Arena, Hole

SLOTS = 40
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("allocate"), st.integers(0, 9), st.integers(1, SLOTS + 2)),
        st.tuples(st.just("free"), st.integers(0, 9), st.just(0)),
        st.tuples(st.just("append"), st.integers(0, 9), st.integers(0, 12)),
    ),
    max_size=60,
)


def owners(arena: Arena) -> list[object]:
    """The owner of each slot, None where it is free; fails where two reservations share a slot."""
    slots: list[object] = [None] * arena.num_slots
    for owner, span in arena.spans.items():
        assert slots[span.start : span.end] == [None] * span.size
        slots[span.start : span.end] = [owner] * span.size
    return slots


@settings(max_examples=150, deadline=None)
@given(STEPS)
def test_any_history_keeps_the_arena_whole(steps: list[tuple[str, int, int]]):
    arena, used = Arena(SLOTS), {}
    for action, owner, number in steps:
        before = owners(arena)
        if action == "allocate" and owner not in used:
            place = "".join("." if o is None else "#" for o in before).find("." * number)
            span = arena.allocate(owner, number)
            assert (span is None) == (place < 0)
            if span is not None:
                assert (span.start, span.size) == (place, number), "the first hole that is large enough"
                used[owner] = 0
        elif action == "free" and owner in used:
            arena.free(owner)
            del used[owner]
        elif action == "append" and owner in used:
            if used[owner] + number <= arena.spans[owner].size:
                arena.append(owner, number)
                used[owner] += number
            else:
                with pytest.raises(ValueError, match="do not fit"):
                    arena.append(owner, number)
        slots = owners(arena)
        free = slots.count(None)
        assert arena.used == sum(used.values())
        assert arena.used + arena.internal + free == SLOTS
        assert sum(hole.size for hole in arena.holes) == free == arena.external(SLOTS + 1)
        assert all(slots[h.start : h.start + h.size] == [None] * h.size for h in arena.holes)
        assert all(a.start + a.size < b.start for a, b in zip(arena.holes, arena.holes[1:], strict=False))


def test_holes_together_would_hold_what_no_hole_holds():
    arena = Arena(10)
    for owner in "abc":
        arena.allocate(owner, 3)
    arena.free("a")
    assert arena.holes == [Hole(0, 3), Hole(9, 1)]
    assert arena.allocate("d", 4) is None
    assert (arena.external(4), arena.external(3), arena.external(1)) == (4, 1, 0)


def test_holes_merge_when_their_neighbour_goes():
    arena = Arena(6)
    for owner in "abc":
        arena.allocate(owner, 2)
    arena.free("a")
    arena.free("b")
    assert arena.allocate("d", 4) is not None


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (lambda a: Arena(0), "at least one slot"),
        (lambda a: a.allocate("b", 0), "at least one slot"),
        (lambda a: a.allocate("a", 1), "already"),
        (lambda a: a.free("b"), "no reservation"),
        (lambda a: a.append("a", 5), "do not fit"),
    ],
)
def test_refuses(wrong, sentence: str):
    arena = Arena(8)
    arena.allocate("a", 4)
    with pytest.raises(ValueError, match=sentence):
        wrong(arena)
