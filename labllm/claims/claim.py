"""What a claim is: a sentence that one reads about inference, and how records decide on it.

A verdict is one of five words. 'holds when' carries its condition, since most claims leave out the setting in which
they are true; 'cannot hold as written' is for a claim that no measurement could bear out; 'no record yet' says that
nothing was measured. Invariant: every figure of a verdict is computed from records or counted; a claim's own text
states what others say.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from labllm.bench import Record
from labllm.bench.recorded import shipped

Word = Literal["holds", "holds when", "does not hold", "cannot hold as written", "no record yet"]


@dataclass(frozen=True)
class Verdict:
    """`sentence` holds our figure; `condition` completes 'holds when'; `machine` and `date` are its records'."""

    word: Word
    sentence: str
    condition: str = ""
    machine: str = ""
    date: str = ""

    def __post_init__(self) -> None:
        if (self.word == "holds when") != bool(self.condition):
            raise ValueError(f"a condition goes with 'holds when' and with no other verdict, got {self.word!r}")

    @property
    def text(self) -> str:
        """The word with its condition."""
        return f"{self.word} {self.condition}".strip()

    @property
    def origin(self) -> str:
        """Machine and date in one line."""
        return ", ".join(part for part in (self.machine, self.date) if part)


@dataclass(frozen=True)
class Claim:
    """`statement` is the claim in our words, `known` what `sources` say; `evidence` judges records of `ladders`."""

    letter: str
    statement: str
    lab: int
    known: str
    sources: tuple[str, ...]
    evidence: Callable[[Sequence[Record]], Verdict]
    ladders: tuple[str, ...] = ()

    def verdict(self, records: Sequence[Record] | None = None) -> Verdict:
        """The verdict of `records` (default: those that ship with the package)."""
        if records is None:
            records = [r for ladder in self.ladders for r in shipped(ladder)]
        return self.evidence([r for r in records if r.ladder in self.ladders])


def missing(ladder: str, what: str = "") -> Verdict:
    """The verdict where `what` (default: the ladder) was not measured, with the command that would change that."""
    needed = what or f"a record of the ladder {ladder} that decides it"
    return Verdict("no record yet", f"Missing: {needed}; `labllm bench {ladder}` measures on your machine.")
