"""`check(name, fn)`: runs a learner's function on named cases and says what to do next.

It never raises on account of the function, ends after `limit` seconds, and names a likely cause by finding the known
mistake that answers just as the function does. It is for learning, not for marks: it does not defend against cheating.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from labllm.hardware import can, default_device
from labllm.labs import passed, progress
from labllm.labs.attempt import is_stub, is_stub_error, own_line
from labllm.labs.exercise import Exercise, Function
from labllm.labs.limit import Ending, run_limited
from labllm.labs.registry import get, solution_function
from labllm.labs.result import Result, State
from labllm.labs.speed import medians
from labllm.labs.trial import Outcome, alike, argument_names, attempt, judge, same

LIMIT_SECONDS = 20.0


def check(name: str, fn: Any, *, limit: float = LIMIT_SECONDS) -> Result:
    """Checks `fn` against the exercise `name` and keeps the outcome in the learner's progress."""
    try:
        exercise = get(name)
    except ValueError as error:
        return Result(str(name), State.ERROR, str(error))
    try:
        result = _checked(exercise, fn, limit)
    except Exception as error:
        return Result(name, State.ERROR, f"the check itself failed with {type(error).__name__}: {error}")
    if result.passed:
        passed.keep(name, fn)
    trouble = progress.record_check(exercise, result.state)
    return dataclasses.replace(result, notes=result.notes + trouble)


def _checked(exercise: Exercise, fn: Any, limit: float) -> Result:
    name = exercise.name
    if not callable(fn):
        words = f"check takes the function itself, as in check({name!r}, {name}), not a value of {type(fn).__name__}"
        return Result(name, State.ERROR, words)
    if is_stub(fn):
        return Result(name, State.NOT_ATTEMPTED, "the body is still `raise NotImplementedError`: write your own there.")
    device = default_device() if exercise.needs else "cpu"
    if exercise.needs and not (answer := can(exercise.needs, device)):
        return Result(name, State.CANNOT_RUN, answer.reason)
    outcomes: list[Outcome] = []

    def run_cases() -> None:
        for case in exercise.cases:
            outcomes.append(attempt(exercise, fn, case, device))

    ending = run_limited(run_cases, limit)
    if ending.how != "done":
        return _out_of_time(exercise, fn, ending, len(outcomes), limit)
    expected = [attempt(exercise, exercise.reference, case, device) for case in exercise.cases]
    for i, case in enumerate(exercise.cases):
        problem = _problem(exercise, outcomes[i], expected[i])
        if problem is not None:
            cause = "" if problem.state is State.NOT_ATTEMPTED else _cause(exercise, outcomes, i, device)
            return dataclasses.replace(problem, case=case.name, cause=cause, notes=_notes(exercise, outcomes))
    return _passed(exercise, fn, outcomes, device, limit)


def _out_of_time(exercise: Exercise, fn: Function, ending: Ending, answered: int, limit: float) -> Result:
    case = exercise.cases[min(answered, len(exercise.cases) - 1)].name
    after = "it was stopped" if ending.how == "stopped" else "it could not be stopped: restart the kernel to end it"
    words = f"no answer within {limit:g} s (a loop without an end?); {after}."
    return Result(exercise.name, State.ERROR, words, case=case, line=own_line(fn, ending.stack))


def _problem(exercise: Exercise, outcome: Outcome, expected: Outcome) -> Result | None:
    """What is wrong with one outcome, as a result without case and cause; None when it is right."""
    if expected.error is not None:
        raise expected.error
    if outcome.error is not None:
        if is_stub_error(outcome.error):
            words = "the function still comes to `raise NotImplementedError`."
            return Result(exercise.name, State.NOT_ATTEMPTED, words, line=outcome.line)
        words = f"{type(outcome.error).__name__}: {outcome.error}".rstrip(": ")
        return Result(exercise.name, State.ERROR, words, line=outcome.line)
    gap = judge(exercise, outcome, expected)
    if gap is None:
        return None
    return Result(exercise.name, State.WRONG, gap.what, index=gap.index, got=gap.got, expected=gap.expected)


def _cause(exercise: Exercise, outcomes: list[Outcome], failing: int, device: str) -> str:
    """The known mistake that answers like the learner in the failing case, and in most of the others.

    Of two that answer alike, it is the one that also does the same beside the answer.
    """
    best, most = "", (0, 0)
    for cause, fn in ((m.cause, fn) for m in exercise.mistakes for fn in (m.fn, *m.also)):
        if not same(outcomes[failing], attempt(exercise, fn, exercise.cases[failing], device)):
            continue
        theirs = [attempt(exercise, fn, case, device) for case in exercise.cases]
        pairs = list(zip(outcomes, theirs, strict=True))
        likeness = sum(same(mine, other) for mine, other in pairs), sum(alike(mine, other) for mine, other in pairs)
        if likeness > most:
            best, most = cause, likeness
    return best


def _notes(exercise: Exercise, outcomes: list[Outcome]) -> tuple[str, ...]:
    """A sentence when arguments were changed that are no part of the answer."""
    names = argument_names(exercise)
    changed = sorted({names[i] for o in outcomes for i in o.changed if i not in exercise.in_place})
    return (f"it changes its argument {', '.join(changed)}; a caller may not expect that.",) if changed else ()


def _passed(exercise: Exercise, fn: Function, outcomes: list[Outcome], device: str, limit: float) -> Result:
    words = f"all {len(outcomes)} cases agree."
    result = Result(exercise.name, State.PASSED, words, notes=_notes(exercise, outcomes))
    times = medians(exercise, (fn, exercise.reference), device, limit) if exercise.timed else None
    if times is None:
        return result
    shown_by = f'solution("{exercise.name}")' if exercise.faster and solution_function(exercise.name) else ""
    seconds, library_seconds = times
    return dataclasses.replace(
        result, seconds=seconds, library=exercise.library, library_seconds=library_seconds, shown_by=shown_by
    )
