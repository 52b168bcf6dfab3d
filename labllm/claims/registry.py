"""Finds claims: one file a lab, each with its `CLAIMS`, imported when they are asked for."""

from __future__ import annotations

from functools import cache
from importlib import import_module

from labllm.claims.claim import Claim

FILES = (
    "roofline",
    "paged",
    "fusion",
    "flash",
    "batching",
    "scheduling",
    "quantization",
    "int4",
    "tensor_cores",
    "parallel",
)


@cache
def claims() -> tuple[Claim, ...]:
    """All claims by lab, then by letter (a to z, then A to Z). Raises ValueError where two have one letter."""
    found = [claim for name in FILES for claim in import_module(f"labllm.claims.{name}").CLAIMS]
    letters = [claim.letter for claim in found]
    if twice := sorted({letter for letter in letters if letters.count(letter) > 1}):
        raise ValueError(f"two claims have the letter {twice[0]!r}; each needs its own")
    return tuple(sorted(found, key=lambda claim: (claim.lab, claim.letter.isupper(), claim.letter)))


def get(letter: str) -> Claim:
    """The claim with this letter; case counts. Raises ValueError that lists the letters."""
    for claim in claims():
        if claim.letter == letter:
            return claim
    raise ValueError(f"there is no claim {letter!r}; there are {', '.join(claim.letter for claim in claims())}")
