"""A field's values inside a sentence: '512 new tokens', '128 to 2k tokens of context', 'a batch of 64 sequences'.

Which form reads well depends on the label and the unit alone, so that every chart says it the same way.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from labllm.ui.style import count

MASSES = ("context", "history", "prompt", "turn", "cached prefix", "cache")  # there are 'tokens of' these


def amount(label: str, unit: str, *values: Any) -> str:
    """One value of a field, or a range of it, as a noun phrase; `unit` may be empty."""
    numbers = " to ".join(count(value) for value in values)
    one = values[-1] == 1
    if any(isinstance(value, str) for value in values):
        return f"{label} {numbers}"
    if (unit and unit in label.split()) or (label.endswith("s") and not label.endswith("ss")):
        return f"{numbers} {_singular(label, unit) if one else label}"
    measured = f"{numbers} {_one(unit) if one else unit}".strip()
    if label in MASSES and unit:
        return f"{measured} of {label}"
    return f"{'an' if label[:1].lower() in tuple('aeiou') else 'a'} {label} of {measured}"


def short(unit: str, value: Any) -> str:
    """A further value of a field that the sentence has named already: '512 sequences', '64 MiB'."""
    return f"{count(value)} {_one(unit) if value == 1 else unit}".strip()


def parted(title: str) -> tuple[str, str]:
    """The label and the unit of an axis' title: 'context (tokens)' -> ('context', 'tokens')."""
    found = re.fullmatch(r"(.+) \(([^()]+)\)", title)
    return (found[1], found[2]) if found else (title, "")


def listed(names: Sequence[str]) -> str:
    """Names one after the other; one that has a comma within stands in quotes."""
    return ", ".join(f"'{name}'" if "," in name else name for name in names)


def _one(word: str) -> str:
    """'tokens' -> 'token', 'micro-batches' -> 'micro-batch'; a word that does not end in s as it is."""
    return word.removesuffix("es" if word.endswith("ches") else "s")


def _singular(label: str, unit: str) -> str:
    """'new tokens a sequence' -> 'new token a sequence', 'query heads' -> 'query head'."""
    plural = unit if unit in label.split() else label.split()[-1]
    return " ".join(_one(word) if word == plural else word for word in label.split())
