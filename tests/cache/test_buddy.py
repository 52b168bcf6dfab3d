"""The buddy allocator: every slot has one owner or lies in one free span, and free buddies are always joined."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labllm.cache.buddy import Buddies


def sound(buddies: Buddies) -> None:
    """Spans tile the slots, each aligned to its size, and no two free ones of a size are buddies."""
    free = [(start, size) for size, starts in buddies.free_spans.items() for start in starts]
    held = [(span.start, span.size) for span in buddies.spans.values()]
    end = 0
    for start, size in sorted(free + held):
        assert start == end and size & (size - 1) == 0 and start % size == 0
        end += size
    assert end == buddies.num_slots
    for size, starts in buddies.free_spans.items():
        assert not any(start ^ size in starts for start in starts)


@settings(max_examples=150, deadline=None)
@given(st.integers(1, 200), st.lists(st.tuples(st.sampled_from("aadf"), st.integers(1, 40)), max_size=60))
def test_random_operations(num_slots: int, operations: list[tuple[str, int]]) -> None:
    buddies, count = Buddies(num_slots), 0
    for name, number in operations:
        owners, before = list(buddies.spans), dict(buddies.spans)
        owner = owners[number % len(owners)] if owners else None
        if name == "a":
            span = buddies.allocate(count, number)
            assert span is None or number <= span.size < 2 * number
            count += 1
        elif name == "d" and owner is not None:
            larger = buddies.double(owner)
            assert buddies.spans == before if larger is None else larger.size == 2 * before[owner].size
        elif owner is not None:
            buddies.free(owner)
        sound(buddies)
    for owner in list(buddies.spans):
        buddies.free(owner)
    sound(buddies)
    assert sorted(size for size, starts in buddies.free_spans.items() if starts) == [
        1 << bit for bit in range(8) if num_slots >> bit & 1
    ]


def test_a_span_doubles_in_place_where_its_buddy_is_free_and_moves_where_not() -> None:
    buddies = Buddies(16)
    one, two = buddies.allocate("one", 3), buddies.allocate("two", 4)
    assert (one.start, one.size, two.start) == (0, 4, 4)
    assert (buddies.double("one").start, buddies.double("two").start) == (8, 0), "one moves, then two has room"
    assert buddies.double("one") is None and buddies.allocate("three", 1) is None


def test_what_a_span_holds_goes_along() -> None:
    buddies = Buddies(8)
    buddies.allocate("one", 2).used = 2
    assert buddies.double("one").used == 2


def test_a_buddy_allocator_refuses() -> None:
    buddies = Buddies(8)
    buddies.allocate("one", 2)
    with pytest.raises(ValueError, match="already"):
        buddies.allocate("one", 2)
    with pytest.raises(ValueError, match="at least one slot"):
        buddies.allocate("two", 0)
    with pytest.raises(ValueError, match="no reservation"):
        buddies.free("two")
    with pytest.raises(ValueError, match="at least one slot"):
        Buddies(0)
