"""Finds exercises and solutions by module name, importing only the one that is asked for.

Invariant: an exercise's name is its file's name, so a new exercise is a new file and no list has to grow.
"""

from __future__ import annotations

import difflib
import importlib
import pkgutil

from labllm.labs import exercises as _folder
from labllm.labs.exercise import Exercise, Function

SOLUTIONS = "labllm.labs.solutions"


def names() -> list[str]:
    """Names of all exercises, sorted."""
    return sorted(module.name for module in pkgutil.iter_modules(_folder.__path__) if not module.name.startswith("_"))


def get(name: str) -> Exercise:
    """The exercise of that name. Raises ValueError, with the nearest name, when there is none."""
    known = names()
    if name not in known:
        near = difflib.get_close_matches(str(name), known, n=1)
        advice = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(known)}."
        raise ValueError(f"there is no exercise {name!r}; {advice}")
    return importlib.import_module(f"{_folder.__name__}.{name}").EXERCISE


def exercises(lab: int | None = None) -> list[Exercise]:
    """All exercises, or those of one lab, in the order of the labs."""
    found = [get(name) for name in names()]
    return sorted((e for e in found if lab is None or e.lab == lab), key=lambda e: e.lab)


def solution_function(name: str) -> Function | None:
    """The plain solution, or None in a hand-out, which has no solutions."""
    module = f"{SOLUTIONS}.{get(name).name}"
    try:
        return getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        if error.name in (SOLUTIONS, module):
            return None
        raise
