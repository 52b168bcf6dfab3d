"""Keeping the held-out text out of the training text, and each training text in once: both by shingles.

A shingle is a run of 13 tokens, kept as one 64-bit hash (Broder 1997, "On the resemblance and containment of
documents"). The share of a file's shingles that the held-out text also has says whether the file quotes it: packages
vendor backports of the standard library under other names. The same hashes, thinned to one in 16, find near copies.
Cost: 13 multiply-adds a token in numpy, plus one sorted look-up; 80 M tokens take about 20 s.
It loses on files that were renamed throughout: every shingle then differs, and only reading them would tell.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

SHINGLE = 13
_BASE = np.uint64(0x9E3779B97F4A7C15)
_THINNING = np.uint64(16)


def shingles(ids: NDArray[np.uint16], length: int = SHINGLE) -> NDArray[np.uint64]:
    """Hashes [max(T - length + 1, 0)] uint64 of every run of `length` tokens in `ids` [T]."""
    count = len(ids) - length + 1
    if count <= 0:
        return np.empty(0, np.uint64)
    hashes = np.zeros(count, np.uint64)
    for offset in range(length):
        hashes = hashes * _BASE + (ids[offset : offset + count].astype(np.uint64) + np.uint64(1))
        hashes ^= hashes >> np.uint64(29)
    return hashes


class HeldOutShingles:
    """The set of shingles of the held-out texts, asked how much of another text lies in it."""

    def __init__(self, texts: Iterable[NDArray[np.uint16]]) -> None:
        self._known = np.unique(np.concatenate([shingles(ids) for ids in texts]))

    def share(self, ids: NDArray[np.uint16]) -> float:
        """Share, 0 to 1, of the shingles of `ids` [T] that a held-out text has too (0 for a text without shingles)."""
        mine = shingles(ids)
        if not len(mine) or not len(self._known):
            return 0.0
        nearest = np.searchsorted(self._known, mine).clip(max=len(self._known) - 1)
        return float(np.mean(self._known[nearest] == mine))


class SeenTexts:
    """Remembers the texts let in so far and refuses near copies of them, in the order in which they come."""

    def __init__(self, limit: float = 0.5) -> None:
        self._limit = limit
        self._seen: set[int] = set()

    def admit(self, ids: NDArray[np.uint16]) -> bool:
        """Whether less than `limit` of the thinned shingles of `ids` [T] were seen; if so they count as seen now."""
        mine = np.unique(shingles(ids))
        thinned = set(mine[mine % _THINNING == 0].tolist())
        if thinned and len(thinned & self._seen) >= self._limit * len(thinned):
            return False
        self._seen |= thinned
        return True
