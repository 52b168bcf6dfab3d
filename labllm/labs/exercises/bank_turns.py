"""Lab 06: how many turns shared memory takes for one access of a warp.

Teaches what a bank conflict is, and what is none: many threads that read one word are served together.
"""

from __future__ import annotations

from collections import Counter

from labllm.cuda import banks
from labllm.labs.exercise import Case, Exercise, Mistake

Addresses = list[int]


def reference(addresses: Addresses) -> int:
    """Turns for the byte addresses of a warp's 4-byte accesses."""
    return banks.turns(addresses)


def _most(numbers: list[int]) -> int:
    return max(Counter(numbers).values())


def _no_broadcast(addresses: Addresses) -> int:
    return _most([banks.bank(a) for a in addresses])


def _bytes_as_words(addresses: Addresses) -> int:
    return _most([a % 32 for a in set(addresses)])


def _banks_used(addresses: Addresses) -> int:
    return len({banks.bank(a) for a in addresses})


def _conflicts_only(addresses: Addresses) -> int:
    return banks.turns(addresses) - 1


def _all_words(addresses: Addresses) -> int:
    return len({a // 4 for a in addresses})


def _banks_of_sixteen(addresses: Addresses) -> int:
    return _most([w % 16 for w in {a // 4 for a in addresses}])


EXERCISE = Exercise(
    name="bank_turns",
    lab=6,
    title="The turns that shared memory takes to serve one access of a warp.",
    signature="bank_turns(addresses: list[int]) -> int",
    shapes="""
addresses   byte address of each thread's 4-byte access, all multiples of 4
returns the number of turns""",
    formula="""
the word at byte address x lies in bank x // 4 % 32
in a turn each bank delivers one word, to all threads that want it
turns = the most different words that any one bank has to deliver""",
    reference=reference,
    library="labllm.cuda.banks.turns",
    cases=(
        Case("32 neighbours", lambda g: ([4 * t for t in range(32)],)),
        Case("all threads read one word", lambda g: ([640] * 32,)),
        Case("a column of a tile whose rows have 128 bytes", lambda g: (banks.column_of_a_tile(128),)),
        Case("the same column, rows padded to 144 bytes", lambda g: (banks.column_of_a_tile(144),)),
        Case("every second word", lambda g: ([8 * t for t in range(32)],)),
        Case("pairs of threads share a word, in rows of 64 bytes", lambda g: ([64 * (t // 2) for t in range(32)],)),
    ),
    hints=(
        "Turn addresses into words first: address // 4. Two threads with one word are one request.",
        "Sort the different words by their bank, word % 32: a dictionary from bank to a set of words.",
        "Banks work side by side; the one with the most words decides.",
    ),
    mistakes=(
        Mistake("Threads that want the same word are counted as a conflict; one turn serves them all.", _no_broadcast),
        Mistake("The bank is taken of the byte address; it is of the word, address // 4.", _bytes_as_words),
        Mistake("This counts the banks that are used; asked is how long the busiest of them works.", _banks_used),
        Mistake("An access without a conflict takes one turn, not none.", _conflicts_only),
        Mistake("Banks deliver side by side; this adds their words up.", _all_words),
        Mistake("There are 32 banks, not 16.", _banks_of_sixteen),
    ),
)
