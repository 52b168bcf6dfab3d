"""The functions that passed in this session, so that a lab's live chart can show them as the rung `yours`.

Kept for as long as the kernel lives: a function cannot be stored, and after a restart the checks run again anyway.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from labllm.labs.exercise import Function
from labllm.labs.registry import get

if TYPE_CHECKING:
    from labllm.bench import Rung

_functions: dict[str, Function] = {}


def keep(name: str, fn: Function) -> None:
    """Keeps a function that passed, in place of an earlier one."""
    _functions[name] = fn


def yours(name: str) -> tuple[Rung, ...]:
    """The learner's passed function as one rung named 'yours', or nothing: `ladder.extended(*yours("causal_mask"))`.

    Raises ValueError when there is no such exercise, or when it has no place on a ladder.
    """
    exercise = get(name)
    if exercise.as_rung is None:
        raise ValueError(f"exercise {name!r} has no place on a ladder, so there is no rung to make of it")
    if name not in _functions:
        return ()
    return (dataclasses.replace(exercise.as_rung(_functions[name]), name="yours"),)
