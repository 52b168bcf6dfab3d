"""Replay a line of requests against an allocator, and see at every step what each slot is good for.

Requests wait in the order of arrival; the first in line starts as soon as it gets room, reads its prompt, and grows by
one token a step until it ends. Where a sequence cannot grow, the youngest gives up its place, waits at the head of the
line and is read again later with all its tokens; nobody comes in before a sequence has ended. Nothing is computed:
only lengths and slots move. While somebody waits, a slot without a token is waste, and there are three kinds of it:

    for later    reserved, and the same sequence will fill it
    never used   reserved, and no token will ever come: the price of not knowing the length
    free         not reserved, and no room for the first in line

Kwon et al., "Efficient memory management for LLM serving with PagedAttention", SOSP 2023, section 3.1.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean

from labllm.cache.allocators import Allocator, MaxLength
from labllm.cache.traces import Request, lognormal_requests

__all__ = [
    "KINDS",
    "RULES",
    "Moment",
    "Request",
    "Snapshot",
    "follow",
    "kinds",
    "lognormal_requests",
    "replay",
    "shares",
]

KINDS = ("tokens", "for later", "never used", "free")
Spans = dict[str, tuple[tuple[int, int], ...]]


@dataclass(frozen=True)
class Moment:
    """One step, after sequences were admitted and before they grow.

    tokens      tokens of each running sequence, by its number in the trace, in the order of admission
    line        numbers of those that wait, the next one first
    slots       slots by kind; together all that there are
    read        tokens that this step reads: prompts, and sequences that gave up their place before
    recomputed  tokens that must be read again, so far
    """

    step: int
    tokens: Mapping[int, int]
    line: tuple[int, ...]
    slots: Mapping[str, int]
    read: int
    recomputed: int

    @property
    def running(self) -> int:
        """Sequences that run."""
        return len(self.tokens)

    @property
    def waiting(self) -> int:
        """Sequences that wait."""
        return len(self.line)

    def share(self, kind: str) -> float:
        """The part of all slots that is of this kind, 0 to 1."""
        return self.slots[kind] / sum(self.slots.values())


def follow(requests: Sequence[Request], allocator: Allocator, max_len: Callable[[Request], int]) -> Iterator[Moment]:
    """A moment a step, until all requests have ended; max_len(request) is what the allocator is told it may become.

    The allocator may be looked at between two moments. Raises ValueError where a request does not fit it even alone.
    """
    have = [request.prompt for request in requests]
    line, running = deque(range(len(requests))), list[int]()
    step = recomputed = 0
    held_back = False
    while line or running:
        read = 0
        while line and not held_back and allocator.admit(line[0], have[line[0]], max_len(requests[line[0]])):
            read += have[line[0]]
            running.append(line.popleft())
        if not running:
            raise _too_large(requests[line[0]], allocator)
        tokens = {owner: have[owner] for owner in running}
        slots = _count(requests, allocator, tokens)
        yield Moment(step, tokens, tuple(line), slots, read, recomputed)
        active = len(running)
        victims = _grow(requests, allocator, running, have)
        for victim in victims:
            line.appendleft(victim)
            recomputed += have[victim]
        ended = active > len(running) + len(victims)
        held_back = (held_back or bool(victims)) and not ended
        step += 1


def _grow(requests: Sequence[Request], allocator: Allocator, running: list[int], have: list[int]) -> list[int]:
    """One token for every running sequence, the oldest first; returns those that gave up their place for it."""
    turn, victims = 0, list[int]()
    while turn < len(running):
        owner = running[turn]
        if allocator.grow(owner):
            have[owner] += 1
            turn += 1
            if have[owner] == requests[owner].total:
                allocator.finish(owner)
                running.remove(owner)
                turn -= 1
        elif len(running) == 1:
            raise _too_large(requests[owner], allocator)
        else:
            victim = running.pop()
            allocator.finish(victim)
            victims.append(victim)
    return victims


def _too_large(request: Request, allocator: Allocator) -> ValueError:
    return ValueError(f"A request of {request.total} tokens does not fit {allocator.num_slots} slots.")


def _count(requests: Sequence[Request], allocator: Allocator, tokens: Mapping[int, int]) -> dict[str, int]:
    held = {owner: allocator.held(owner) for owner in tokens}
    used, reserved = sum(tokens.values()), sum(held.values())
    later = sum(min(slots, requests[owner].total) for owner, slots in held.items()) - used
    return dict(zip(KINDS, (used, later, reserved - used - later, allocator.num_slots - reserved), strict=True))


def kinds(requests: Sequence[Request], allocator: Allocator, tokens: Mapping[int, int]) -> Spans:
    """(start, size) spans by kind, which tile the slots; `tokens` as in the moment that the allocator stands at."""
    found: dict[str, list[tuple[int, int]]] = {kind: [] for kind in KINDS}
    for owner, used in tokens.items():
        before = 0
        for start, size in allocator.spans(owner):
            edges = [min(max(edge - before, 0), size) for edge in (0, used, requests[owner].total)]
            for kind, low, high in zip(KINDS, edges, [*edges[1:], size], strict=False):
                if high > low:
                    found[kind].append((start + low, high - low))
            before += size
    taken, end = sorted(span for spans in found.values() for span in spans), 0
    for start, size in [*taken, (allocator.num_slots, 0)]:
        if start > end:
            found["free"].append((end, start - end))
        end = start + size
    return {kind: tuple(spans) for kind, spans in found.items()}


@dataclass(frozen=True)
class Snapshot:
    """One step: sequences that run and wait, slots that the first in line asks for, (start, size) spans by kind."""

    step: int
    running: int
    waiting: int
    asked: int
    num_slots: int
    spans: Spans

    def share(self, kind: str) -> float:
        """The part of all slots that is of this kind, 0 to 1."""
        return sum(size for _, size in self.spans[kind]) / self.num_slots


RULES: dict[str, Callable[[Request, int], int]] = {
    "max_model_len": lambda request, max_model_len: max_model_len,
    "next power of two": lambda request, max_model_len: min(max_model_len, 1 << (request.total - 1).bit_length()),
    "true length": lambda request, max_model_len: request.total,
}
"""(request, max_model_len) -> slots to reserve. Only the first can be had: the others know the length beforehand."""


def replay(requests: Sequence[Request], num_slots: int, reserve: Callable[[Request], int]) -> Iterator[Snapshot]:
    """A snapshot a step, as long as requests wait for room, where each reserves `reserve(request)` slots in one piece.

    Who reserves what is a policy (RULES). Raises ValueError for a request that reserves fewer slots than it fills, or
    more than there are.
    """
    for request in requests:
        if not request.total <= reserve(request) <= num_slots:
            raise ValueError(
                f"A request of {request.total} tokens must reserve between that and the arena's {num_slots} slots; "
                f"it reserves {reserve(request)}."
            )
    allocator = MaxLength(num_slots)
    for moment in follow(requests, allocator, reserve):
        if not moment.line:
            return
        asked, spans = reserve(requests[moment.line[0]]), kinds(requests, allocator, moment.tokens)
        yield Snapshot(moment.step, moment.running, moment.waiting, asked, num_slots, spans)


def shares(steps: Sequence[Snapshot] | Sequence[Moment]) -> dict[str, float]:
    """Mean share of each kind over the second half of the steps in which somebody waits, when starting up is over.

    Raises ValueError where nobody ever does.
    """
    waited = [step for step in steps if step.waiting]
    if not waited:
        raise ValueError("There is no step in which a request waited: send more requests, or take a smaller arena.")
    return {kind: mean(step.share(kind) for step in waited[len(waited) // 2 :]) for kind in KINDS}
