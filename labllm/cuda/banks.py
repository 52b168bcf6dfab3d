"""Banks of shared memory: how many turns a warp's access takes.

Shared memory has 32 banks of 4 bytes: the word at byte address x lies in bank `x // 4 % 32`. In one turn each bank
delivers one word, to as many threads as want it. Different words of one bank take one turn each: a bank conflict.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

BANKS, WORD = 32, 4


def bank(address: int) -> int:
    """The bank of a byte address."""
    return address // WORD % BANKS


def turns(addresses: Iterable[int]) -> int:
    """Turns that shared memory takes to serve one 4-byte access a thread at these byte addresses; 0 for none."""
    words: dict[int, set[int]] = defaultdict(set)
    for address in addresses:
        words[bank(address)].add(address // WORD)
    return max((len(wanted) for wanted in words.values()), default=0)


def column_of_a_tile(pitch: int, threads: int = BANKS) -> list[int]:
    """Byte addresses that `threads` threads read when each takes the first word of its own row of `pitch` bytes."""
    return [pitch * thread for thread in range(threads)]
