"""`hint` climbs a ladder of hints, one a call; `solution` shows the plain solution.

Both are noted in the progress until the exercise has passed; from then on nothing is spoilt and all hints are shown.
"""

from __future__ import annotations

import inspect

from labllm.labs import progress
from labllm.labs.card import Card
from labllm.labs.registry import get, solution_function
from labllm.labs.result import State


def hint(name: str) -> Card:
    """The next hint, below the ones seen before. Raises ValueError when there is no such exercise."""
    exercise = get(name)
    total = len(exercise.hints)
    entry = progress.entry(exercise)[0]
    seen = total if entry.state == State.PASSED.value else min(entry.hints_used + 1, total)
    trouble = progress.record_help(exercise, hints_used=seen)
    rows = [(f"{i} of {total}", text) for i, text in enumerate(exercise.hints[:seen], start=1)]
    if seen == total:
        further = f'; solution("{name}") shows the plain solution' if solution_function(name) else ""
        rows.append(("", f"That is the last hint{further}."))
    return Card("HINT", name, (*rows, *(("note", t) for t in trouble)), tone="info")


def solution(name: str) -> Card:
    """The source of the plain solution, and of a faster one if any. Raises ValueError for an unknown exercise."""
    exercise = get(name)
    function = solution_function(name)
    if function is None:
        return Card("SOLUTION", name, (("", "not shipped with this hand-out; hint() and check() work as ever."),))
    trouble = progress.record_help(exercise, solution_opened=True)
    code = inspect.getsource(function)
    if exercise.faster:
        quick = inspect.getsource(exercise.faster).replace(f"def {exercise.faster.__name__}(", f"def {name}(", 1)
        code += f"\n\n# faster, and not asked for: {exercise.library}\n{quick}"
    return Card("SOLUTION", name, tuple(("note", t) for t in trouble), code=code, tone="info")
