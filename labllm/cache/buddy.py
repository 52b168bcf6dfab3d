"""A buddy allocator: spans of 1, 2, 4, 8 ... slots, each twice as large as the next smaller kind.

A span of size s starts at a multiple of s, and its buddy, the other half of the span of size 2s, starts at
`start XOR s`. So a free span finds its partner by one operation, and two free buddies are one span again (Knowlton, "A
fast storage allocator", CACM 1965). A sequence that outgrows its span takes one twice as large, in place where its
buddy is free and else elsewhere, with its content copied there.

Cost: O(log num_slots) a call. Invariant: spans, held and free, tile the slots and no two free ones are buddies. It
wastes up to half of each span inside, and free spans that are no buddies do not join.
"""

from __future__ import annotations

from collections.abc import Hashable

from labllm.cache.reserve import Reservation


class Buddies:
    """`num_slots` slots, any number: the powers of two that it consists of, the largest first.

    Raises ValueError for fewer than one slot.
    """

    def __init__(self, num_slots: int) -> None:
        if num_slots < 1:
            raise ValueError(f"An arena needs at least one slot; got {num_slots}.")
        self.num_slots = num_slots
        self.spans: dict[Hashable, Reservation] = {}
        self.free_spans: dict[int, set[int]] = {}  # starts by size
        start = 0
        for bit in reversed(range(num_slots.bit_length())):
            self.free_spans[1 << bit] = set()
            if num_slots >> bit & 1:
                self.free_spans[1 << bit].add(start)
                start += 1 << bit

    def allocate(self, owner: Hashable, size: int) -> Reservation | None:
        """Reserve the next power of two of `size` slots; None where no span is large enough.

        Raises ValueError for a size that is not positive, and for an owner that has a span already.
        """
        if size < 1:
            raise ValueError(f"A reservation needs at least one slot; got {size}.")
        if owner in self.spans:
            raise ValueError(f"{owner!r} holds a reservation already; free it first.")
        size = 1 << (size - 1).bit_length()
        start = self._take(size)
        if start is None:
            return None
        self.spans[owner] = span = Reservation(start, size)
        return span

    def double(self, owner: Hashable) -> Reservation | None:
        """Give `owner` a span twice as large, with what it holds; None, and no change, where there is none."""
        span = self.spans[owner]
        buddy = span.start ^ span.size
        if buddy in self.free_spans.get(span.size, ()):
            self.free_spans[span.size].remove(buddy)
            start: int | None = min(span.start, buddy)
        elif (start := self._take(2 * span.size)) is not None:
            self._give(span.start, span.size)
        if start is None:
            return None
        self.spans[owner] = larger = Reservation(start, 2 * span.size, span.used)
        return larger

    def free(self, owner: Hashable) -> None:
        """Give the owner's span back. Raises ValueError where it has none."""
        if owner not in self.spans:
            raise ValueError(f"{owner!r} holds no reservation here.")
        span = self.spans.pop(owner)
        self._give(span.start, span.size)

    def _take(self, size: int) -> int | None:
        """The start of a free span of this size, cut from the smallest that is large enough, the lowest first."""
        found = next((s for s in sorted(self.free_spans) if s >= size and self.free_spans[s]), None)
        if found is None:
            return None
        start = min(self.free_spans[found])
        self.free_spans[found].remove(start)
        while found > size:
            found //= 2
            self.free_spans[found].add(start + found)
        return start

    def _give(self, start: int, size: int) -> None:
        while start ^ size in self.free_spans[size]:
            self.free_spans[size].remove(start ^ size)
            start, size = min(start, start ^ size), 2 * size
        self.free_spans[size].add(start)
