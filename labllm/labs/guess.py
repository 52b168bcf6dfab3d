"""`predict` keeps a guess before a measurement; `reflect` sets the two side by side. What surprises is what teaches.

What nobody could measure is computed: then the card says 'by formula' or 'simulated' in place of 'measured'.

Kept in `$LABLLM_HOME/predictions`, one file a guess, so a guess outlives the kernel.
"""

from __future__ import annotations

import contextlib
import math
import re
from pathlib import Path
from typing import Any

from labllm.home import home
from labllm.labs import store
from labllm.labs.card import Card
from labllm.labs.progress import now

Rows = tuple[tuple[str, str], ...]
ORIGINS = {"measured": "the measurement", "by formula": "the formula's result", "simulated": "the simulation"}


def predict(name: str, value: float | None, unit: str) -> Card:
    """Keeps the guess `value` in `unit`; None means that there is no guess yet, and keeps an earlier one or the unit.

    Raises ValueError for a name that is no plain word, and for a guess that is no finite number.
    """
    _named(name)
    if value is None:
        rows = (("", f"put your guess ({unit}) in place of None, before you measure."),)
        return Card("PREDICT", name, rows + _keep_unit(name, unit))
    number = _finite(value, "a guess")
    try:
        store.write(_path(name), {"value": number, "unit": unit, "time": now()})
    except OSError as error:
        return Card("PREDICT", name, (("your guess", _quantity(number, unit)), ("note", f"it was not saved: {error}")))
    return Card(
        "PREDICT", name, (("your guess", f"{_quantity(number, unit)}; it is kept until you measure."),), tone="info"
    )


def reflect(name: str, value: float, origin: str = "measured") -> Card:
    """Sets the guess `name` beside `value`, in the unit that `predict` named; `origin` is a key of ORIGINS.

    Raises ValueError for a name that is no plain word, a value that is no finite number and another origin.
    """
    _named(name)
    if origin not in ORIGINS:
        raise ValueError(f"a value is {', '.join(ORIGINS)}, not {origin!r}")
    number = _finite(value, ORIGINS[origin])
    kept, notes = _kept(name)
    unit = str(kept.get("unit", ""))
    if not isinstance(kept.get("value"), (int, float)):
        rows = ((origin, _quantity(number, unit)), ("your guess", f'none; predict("{name}", ...) keeps one.'))
        return Card("REFLECT", name, rows + notes)
    guess = float(kept["value"])
    rows = (
        ("your guess", _quantity(guess, unit)),
        (origin, _quantity(number, unit)),
        ("", _distance(guess, number, ORIGINS[origin])),
    )
    return Card("REFLECT", name, rows + notes, tone="info")


def _kept(name: str) -> tuple[dict[str, Any], Rows]:
    """What is kept under this name, nothing at all included, and a note when it cannot be read."""
    try:
        kept, trouble = store.read(_path(name))
    except OSError as error:
        kept, trouble = {}, f"predictions cannot be read: {error}"
    return kept, (("note", trouble),) if trouble else ()


def _keep_unit(name: str, unit: str) -> Rows:
    """Lets `reflect` know the unit of what nobody guessed; a folder that cannot be written costs only that."""
    kept, notes = _kept(name)
    if "value" not in kept:
        with contextlib.suppress(OSError):
            store.write(_path(name), {"unit": unit, "time": now()})
    return notes


def _distance(guess: float, value: float, named: str) -> str:
    if guess <= 0 or value <= 0:
        return f"the guess is off by {abs(guess - value):.3g}."
    ratio = guess / value
    if 0.8 <= ratio <= 1.25:
        return f"the guess is within a quarter of {named}."
    side, factor = ("above", ratio) if ratio > 1 else ("below", 1 / ratio)
    return f"the guess is {side} {named} by a factor of {factor:.1f}: what did it leave out?"


def _quantity(number: float, unit: str) -> str:
    return f"{number:.4g} {unit}".rstrip()


def _finite(value: float, what: str) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"{what} is one finite number, such as 3.5, not {value!r}")
    return number


def _named(name: str) -> None:
    if not re.fullmatch(r"\w+", str(name)):
        raise ValueError(f"a prediction's name is one word of letters, digits and underscores, not {name!r}")


def _path(name: str) -> Path:
    return home() / "predictions" / f"{name}.json"
