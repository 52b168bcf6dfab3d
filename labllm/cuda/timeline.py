"""When a block fetches and when it multiplies: what buffers buy, step by step.

    fetch i starts      when the buffer that it fills was multiplied: after product i - buffers
    product i starts    when fetch i is there and product i - 1 is done

With one buffer fetch and product take turns: steps (f + p). With two, a fetch hides behind a product as long as f <= p.
A fetch is a wait for memory and no work, so several can be under way: with B buffers f may be B - 1 times as long as p.

Invariant: a buffer is never filled while it is multiplied. It leaves out what the real kernel shares with others: the
memory's bandwidth, and the second block of the multiprocessor, whose products fill these gaps as well.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Span:
    """From `start` on for `length`, in the unit of the times given."""

    start: float
    length: float

    @property
    def end(self) -> float:
        return self.start + self.length


@dataclass(frozen=True)
class Timeline:
    """Fetches and products of a block in order; fetch i fills buffer i % buffers."""

    fetches: tuple[Span, ...]
    products: tuple[Span, ...]

    @property
    def end(self) -> float:
        """When the last product is done."""
        return self.products[-1].end

    @property
    def busy(self) -> float:
        """Share of the time in which something is multiplied."""
        return sum(p.length for p in self.products) / self.end


def timeline(steps: int, buffers: int, fetch: float, product: float = 1.0) -> Timeline:
    """The timeline of `steps` tiles with times `fetch` and `product` each. ValueError for none, or no time."""
    if steps < 1 or buffers < 1:
        raise ValueError(f"there must be at least one step and one buffer, got {steps} and {buffers}")
    if fetch <= 0 or product <= 0:
        raise ValueError(f"a fetch and a product take some time, got {fetch} and {product}")
    fetches: list[Span] = []
    products: list[Span] = []
    for i in range(steps):
        free = products[i - buffers].end if i >= buffers else 0.0
        fetches.append(Span(free, fetch))
        before = products[-1].end if products else 0.0
        products.append(Span(max(before, fetches[i].end), product))
    return Timeline(tuple(fetches), tuple(products))
