"""What a learner has done, one small JSON file an exercise in `$LABLLM_HOME/progress`.

One file each: two notebooks open at once do not overwrite each other's news, and a broken file costs one exercise.
Invariants: once passed, an exercise stays PASSED, and help taken afterwards counts as none; running the untouched
notebook again changes nothing.
"""

from __future__ import annotations

import dataclasses
import datetime
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from labllm import __version__
from labllm.home import home
from labllm.labs import store
from labllm.labs.exercise import Exercise
from labllm.labs.registry import exercises
from labllm.labs.result import State


@dataclass(frozen=True)
class Entry:
    """Progress on one exercise; `time` is when it last changed, in ISO form and UTC; empty without an attempt."""

    exercise: str
    lab: int
    state: str = State.NOT_ATTEMPTED.value
    attempts: int = 0
    hints_used: int = 0
    solution_opened: bool = False
    versions: str = ""
    time: str = ""


COLUMNS = tuple(field.name for field in dataclasses.fields(Entry))


def entry(exercise: Exercise) -> tuple[Entry, str]:
    """The exercise's entry, and a sentence when its file was broken and has been set aside."""
    try:
        stored, trouble = store.read(_path(exercise))
    except OSError as error:
        stored, trouble = {}, f"progress cannot be read: {error}"
    new = Entry(exercise.name, exercise.lab)
    same_type = {k: v for k, v in stored.items() if k in COLUMNS and type(v) is type(getattr(new, k))}
    return dataclasses.replace(new, **same_type | {"exercise": exercise.name, "lab": exercise.lab}), trouble


def entries() -> tuple[list[Entry], list[str]]:
    """All exercises in the order of the labs, attempted or not, and the sentences of trouble met."""
    found = [entry(exercise) for exercise in exercises()]
    return [e for e, _ in found], [trouble for _, trouble in found if trouble]


def record_check(exercise: Exercise, state: State) -> tuple[str, ...]:
    """Keeps the state of a check; returns sentences of trouble instead of raising."""
    old, trouble = entry(exercise)
    attempted = state not in (State.NOT_ATTEMPTED, State.CANNOT_RUN)
    kept = old.state if old.state == State.PASSED.value or (old.attempts and not attempted) else state.value
    changed = attempted or kept != old.state or bool(trouble)
    failed = _save(exercise, old, state=kept, attempts=old.attempts + attempted) if changed else ""
    return tuple(t for t in (trouble, failed) if t)


def record_help(exercise: Exercise, *, hints_used: int | None = None, solution_opened: bool = False) -> tuple[str, ...]:
    """Keeps how far up the ladder of hints the learner is, and that the solution was opened, until it has passed."""
    old, trouble = entry(exercise)
    if old.state == State.PASSED.value:
        return (trouble,) if trouble else ()
    hints = old.hints_used if hints_used is None else max(old.hints_used, hints_used)
    failed = _save(exercise, old, hints_used=hints, solution_opened=old.solution_opened or solution_opened)
    return tuple(t for t in (trouble, failed) if t)


def now() -> str:
    """This moment in UTC, as '2030-01-31T12:00:00+00:00'."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def _save(exercise: Exercise, old: Entry, **changes: Any) -> str:
    new = dataclasses.replace(old, **changes)
    if new.attempts:
        versions = f"labllm {__version__}, torch {torch.__version__}, Python {platform.python_version()}"
        new = dataclasses.replace(new, versions=versions, time=now())
    try:
        store.write(_path(exercise), dataclasses.asdict(new))
    except OSError as error:
        return f"progress was not saved: {error}"
    return ""


def _path(exercise: Exercise) -> Path:
    return home() / "progress" / f"{exercise.name}.json"
