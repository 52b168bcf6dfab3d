"""Tells an untouched stub from an attempt, and finds the learner's line in a traceback.

Decided on the compiled function, because the source of a notebook cell is not always at hand. A `NotImplementedError`
without a message, raised during a call, is the stub's too; torch's own always carry one.
"""

from __future__ import annotations

import dis
import linecache
import traceback
from collections.abc import Iterable
from types import CodeType
from typing import Any

_PLUMBING = {"RESUME", "NOP", "CACHE", "PUSH_NULL", "PRECALL", "CALL", "LOAD_CONST", "COPY_FREE_VARS", "NOT_TAKEN"}


def is_stub(fn: Any) -> bool:
    """True when the function's body is only `raise NotImplementedError`, with or without docstring and message."""
    code = _code(fn)
    if code is None or code.co_names != ("NotImplementedError",):
        return False
    steps = [step.opname for step in dis.get_instructions(code) if step.opname not in _PLUMBING]
    return steps == ["LOAD_GLOBAL", "RAISE_VARARGS"]


def is_stub_error(error: BaseException) -> bool:
    """True for the bare `raise NotImplementedError` that is still reached on some path."""
    return type(error) is NotImplementedError and not error.args


def _code(fn: Any) -> CodeType | None:
    """The compiled body, also of a function under `@triton.jit`, which keeps it as `fn`."""
    return getattr(getattr(fn, "fn", fn), "__code__", None)


def own_line(fn: Any, frames: Iterable[traceback.FrameSummary]) -> str:
    """The innermost of `frames` in the file or cell that defines `fn`, as 'line 3: x = y'; empty without one."""
    filename = getattr(_code(fn), "co_filename", None)
    lines = [frame.lineno for frame in frames if frame.filename == filename]
    if not lines:
        return ""
    text = linecache.getline(filename, lines[-1]).strip()
    return f"line {lines[-1]}: {text}" if text else f"line {lines[-1]}"
