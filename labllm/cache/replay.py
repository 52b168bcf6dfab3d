"""Replay a line of requests against a contiguous arena, and see at every step what each slot is good for.

Requests wait in the order of arrival; the first in line starts as soon as its reservation fits, reads its prompt, and
grows by one token a step until it ends. Nothing is computed: only lengths and slots move. While somebody waits, a slot
without a token is waste, and there are three kinds of it:

    for later    reserved, and the same sequence will fill it
    never used   reserved, and no token will ever come: the price of not knowing the length
    free         not reserved, and no hole is large enough for the first in line

Who reserves what is a policy: the longest length that the model allows, or the true length, which only an oracle
knows. Kwon et al., "Efficient memory management for LLM serving with PagedAttention", SOSP 2023, section 3.1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import mean

import numpy as np

from labllm.cache.reserve import Arena

KINDS = ("tokens", "for later", "never used", "free")


@dataclass(frozen=True)
class Request:
    """A sequence that comes with `prompt` tokens and ends after `output` further ones."""

    prompt: int
    output: int

    @property
    def total(self) -> int:
        """Tokens at its end."""
        return self.prompt + self.output


@dataclass(frozen=True)
class Snapshot:
    """One step: sequences that run and wait, slots that the first in line asks for, (start, size) spans by kind."""

    step: int
    running: int
    waiting: int
    asked: int
    num_slots: int
    spans: dict[str, tuple[tuple[int, int], ...]]

    def share(self, kind: str) -> float:
        """The part of all slots that is of this kind, 0 to 1."""
        return sum(size for _, size in self.spans[kind]) / self.num_slots


RULES: dict[str, Callable[[Request, int], int]] = {
    "max_model_len": lambda request, max_model_len: max_model_len,
    "next power of two": lambda request, max_model_len: min(max_model_len, 1 << (request.total - 1).bit_length()),
    "true length": lambda request, max_model_len: request.total,
}
"""(request, max_model_len) -> slots to reserve. Only the first can be had: the others know the length beforehand."""


def lognormal_requests(count: int, average: float, spread: float, max_len: int, seed: int = 0) -> list[Request]:
    """Seeded requests of about `average` tokens, half of them prompt, at most `max_len`.

    `spread` is standard deviation over mean before lengths are cut to 2 .. max_len; 0 makes all equal. Raises
    ValueError for a count below one, an average outside 2 .. max_len, or a negative spread.
    """
    if count < 1 or spread < 0 or not 2 <= average <= max_len:
        raise ValueError(
            "Requests need count >= 1, 2 <= average <= max_len and spread >= 0; "
            f"got {count}, {average} of {max_len} and {spread}."
        )
    sigma = math.sqrt(math.log1p(spread**2))
    lengths = np.random.default_rng(seed).lognormal(math.log(average) - sigma**2 / 2, sigma, count)
    totals = np.clip(lengths.round(), 2, max_len).astype(int).tolist()
    return [Request(total // 2, total - total // 2) for total in totals]


def replay(requests: Sequence[Request], num_slots: int, reserve: Callable[[Request], int]) -> Iterator[Snapshot]:
    """A snapshot a step, as long as requests wait for room; `reserve(request)` is the slots that it asks for.

    Raises ValueError for a request that reserves fewer slots than it fills, or more than there are.
    """
    for request in requests:
        if not request.total <= reserve(request) <= num_slots:
            raise ValueError(
                f"A request of {request.total} tokens must reserve between that and the arena's {num_slots} slots; "
                f"it reserves {reserve(request)}."
            )
    arena, admitted, step = Arena(num_slots), 0, 0
    while True:
        while admitted < len(requests) and arena.allocate(admitted, reserve(requests[admitted])):
            arena.append(admitted, requests[admitted].prompt)
            admitted += 1
        if admitted == len(requests):
            return
        yield _snapshot(arena, requests, step, admitted, reserve(requests[admitted]))
        for index, span in arena.spans.items():
            arena.append(index)
            if span.used == requests[index].total:
                arena.free(index)
        step += 1


def shares(snapshots: Sequence[Snapshot]) -> dict[str, float]:
    """Mean share of each kind over the second half of the steps, when starting up is over."""
    if not snapshots:
        raise ValueError("There is no step in which a request waited: send more requests, or take a smaller arena.")
    late = snapshots[len(snapshots) // 2 :]
    return {kind: mean(s.share(kind) for s in late) for kind in KINDS}


def _snapshot(arena: Arena, requests: Sequence[Request], step: int, admitted: int, asked: int) -> Snapshot:
    spans: dict[str, list[tuple[int, int]]] = {kind: [] for kind in KINDS}
    for index, span in arena.spans.items():
        full = span.start + requests[index].total
        bounds = (span.start, span.start + span.used, full, span.end)
        for kind, start, end in zip(KINDS, bounds, bounds[1:], strict=False):
            if end > start:
                spans[kind].append((start, end - start))
    spans["free"] = [tuple(hole) for hole in arena.holes]
    found = {kind: tuple(found) for kind, found in spans.items()}
    return Snapshot(step, len(arena.spans), len(requests) - admitted, asked, arena.num_slots, found)
