"""A contiguous allocator: each sequence reserves one unbroken span of cache slots for as long as it lives.

First fit (Knuth, The Art of Computer Programming, vol. 1, section 2.5): the first hole that is large enough, holes
merging when they meet. It wastes in two ways, and both are counted exactly, in slots:

    internal   reserved and empty: a span is sized for what a sequence may become, not for what it is
    external   free and yet no use: holes, each too small for the next sequence, though together they would hold it

Cost: one pass over the spans to allocate. Invariant: spans and holes tile the arena, never overlap, and no two holes
touch. It loses as soon as lengths differ; pages of equal size have no external waste and almost no internal one.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import NamedTuple


class Hole(NamedTuple):
    """Free slots start .. start + size - 1."""

    start: int
    size: int


@dataclass
class Reservation:
    """Slots start .. start + size - 1 belong to one sequence; the first `used` of them hold tokens."""

    start: int
    size: int
    used: int = 0

    @property
    def end(self) -> int:
        """The slot behind the span."""
        return self.start + self.size


class Arena:
    """`num_slots` cache slots of one token each. Raises ValueError for fewer than one slot."""

    def __init__(self, num_slots: int) -> None:
        if num_slots < 1:
            raise ValueError(f"An arena needs at least one slot; got {num_slots}.")
        self.num_slots = num_slots
        self._spans: dict[Hashable, Reservation] = {}  # in the order of their slots

    @property
    def spans(self) -> dict[Hashable, Reservation]:
        """Reservations by owner, in the order of their slots."""
        return dict(self._spans)

    def of(self, owner: Hashable) -> Reservation:
        """The reservation of `owner`. Raises ValueError where it has none."""
        if owner not in self._spans:
            raise ValueError(f"{owner!r} holds no reservation here.")
        return self._spans[owner]

    @property
    def holes(self) -> list[Hole]:
        """Free spans, in order."""
        holes, end = [], 0
        for span in self._spans.values():
            if span.start > end:
                holes.append(Hole(end, span.start - end))
            end = span.end
        return [*holes, Hole(end, self.num_slots - end)] if end < self.num_slots else holes

    def allocate(self, owner: Hashable, size: int) -> Reservation | None:
        """Reserve `size` slots in the first hole that has them; None where no hole does.

        Raises ValueError for a size that is not positive, and for an owner that has a reservation already.
        """
        if size < 1:
            raise ValueError(f"A reservation needs at least one slot; got {size}.")
        if owner in self._spans:
            raise ValueError(f"{owner!r} holds a reservation already; free it first.")
        hole = next((hole for hole in self.holes if hole.size >= size), None)
        if hole is None:
            return None
        self._spans[owner] = span = Reservation(hole.start, size)
        self._spans = dict(sorted(self._spans.items(), key=lambda item: item[1].start))
        return span

    def append(self, owner: Hashable, num_tokens: int = 1) -> None:
        """Write tokens behind those that `owner` has. Raises ValueError past the end of its reservation."""
        span = self.of(owner)
        if num_tokens < 0 or span.used + num_tokens > span.size:
            raise ValueError(
                f"{owner!r} holds {span.used} tokens of {span.size} reserved; {num_tokens} more do not fit."
            )
        span.used += num_tokens

    def free(self, owner: Hashable) -> None:
        """Give the owner's slots back. Raises ValueError where it has none."""
        self.of(owner)
        del self._spans[owner]

    @property
    def used(self) -> int:
        """Slots that hold a token."""
        return sum(span.used for span in self._spans.values())

    @property
    def internal(self) -> int:
        """Slots reserved and empty."""
        return sum(span.size - span.used for span in self._spans.values())

    def external(self, size: int) -> int:
        """Free slots in holes too small for a reservation of `size`: all free slots where it cannot be placed."""
        return sum(hole.size for hole in self.holes if hole.size < size)
