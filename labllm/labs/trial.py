"""Runs one function on the cases of an exercise and keeps what came of each: a value, or the exception.

Invariant: every call gets its own deep copies, so a function that changes its inputs harms neither the next case nor
the expected answer. Gradients are off; `inference_mode` is not used: its tensors would refuse later in-place use.
"""

from __future__ import annotations

import copy
import inspect
import traceback
from dataclasses import dataclass
from typing import Any

import torch

from labllm.labs.attempt import own_line
from labllm.labs.compare import Difference, difference
from labllm.labs.exercise import Case, Exercise, Function
from labllm.labs.limit import TimeUp


@dataclass(frozen=True)
class Outcome:
    """Of one case: the answer, or the error with the learner's line.

    `changed` are positions of changed arguments; `returned` says that an answer came back where none is asked for.
    """

    value: Any = None
    error: BaseException | None = None
    line: str = ""
    changed: tuple[int, ...] = ()
    returned: bool = False


@torch.no_grad()
def attempt(exercise: Exercise, fn: Function, case: Case, device: str = "cpu") -> Outcome:
    """Runs `fn` on copies of the case's arguments. Whatever it raises, but TimeUp, becomes part of the outcome."""
    given = exercise.arguments(case, device)
    args = copy.deepcopy(given)
    try:
        returned = exercise.call(fn, args)
        value = tuple(args[i] for i in exercise.in_place) if exercise.in_place else returned
        changed = tuple(i for i, (now, then) in enumerate(zip(args, given, strict=True)) if difference(now, then))
        return Outcome(_kept(value), changed=changed, returned=bool(exercise.in_place) and returned is not None)
    except TimeUp:
        raise
    except BaseException as error:  # a learner's function may raise anything, SystemExit included
        return Outcome(error=error, line=own_line(fn, traceback.extract_tb(error.__traceback__)))


def judge(exercise: Exercise, outcome: Outcome, expected: Outcome) -> Difference | None:
    """How the outcome's value differs from the expected one, with the name of the part or of the argument."""
    if not exercise.in_place:
        return difference(outcome.value, expected.value, parts=exercise.parts)
    names = argument_names(exercise)
    found = (
        difference(got, right, names[i])
        for i, got, right in zip(exercise.in_place, outcome.value, expected.value, strict=True)
    )
    first = next((d for d in found if d), None)
    if first and not set(outcome.changed) & set(exercise.in_place):
        named = _listed([names[i] for i in exercise.in_place])
        kinds = _listed(sorted({"tensors" if isinstance(x, torch.Tensor) else "lists" for x in expected.value}))
        return Difference(f"{named} did not change: write the answer into the {kinds} that are passed")
    return first


def same(a: Outcome, b: Outcome) -> bool:
    """True when two outcomes are the same answer or the same complaint."""
    if a.error or b.error:
        return type(a.error) is type(b.error) and str(a.error) == str(b.error)
    return difference(a.value, b.value) is None


def alike(a: Outcome, b: Outcome) -> bool:
    """True when two outcomes agree in what happened beside the answer: what was changed, what came back unasked."""
    return (a.changed, a.returned) == (b.changed, b.returned)


def argument_names(exercise: Exercise) -> list[str]:
    return list(inspect.signature(exercise.reference).parameters)


def _listed(words: list[str]) -> str:
    """'a', 'a and b', 'a, b and c'."""
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def _kept(value: Any) -> Any:
    """A copy, so that a function which hands out one buffer again and again cannot rewrite its earlier answers."""
    try:
        return copy.deepcopy(value)
    except Exception:  # an exotic return value is only shown by its type
        return value
