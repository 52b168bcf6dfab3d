"""What a figure depends on: the rung's own source and the versions around it.

The hash ignores comments, docstrings and layout, so that a better sentence does not make a record old. It is computed
from the text with these cut out and white space removed, never from a syntax dump, whose form changes with each
Python.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import io
import platform
import re
import tokenize
from collections.abc import Iterable
from functools import partial
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

HARNESS = {"bench", "compiler", "devices", "hardware", "home", "roofline", "ui"}
VERSIONED = ("torch", "triton", "transformers", "flashinfer-python", "liger-kernel")


def without_comments(source: str) -> str:
    """C++ source without comments and white space."""
    return "".join(re.sub(r"//[^\n]*|/\*.*?\*/", "", source, flags=re.DOTALL).split())


def normalised(source: str) -> str:
    """Python source without comments, docstrings, white space and trailing commas."""
    cut: list[tuple[int, int, int]] = []  # row and column where it starts, and its last row
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) and node.body:
            first = node.body[0]
            if (
                isinstance(first, ast.Expr)
                and isinstance(first.value, ast.Constant)
                and isinstance(first.value.value, str)
            ):
                cut.append((first.lineno, 0, first.end_lineno or first.lineno))
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            cut.append((*token.start, token.start[0]))
    lines = source.splitlines()
    for row, col, end_row in cut:
        for number in range(row, end_row + 1):
            lines[number - 1] = lines[number - 1][:col] if number == row else ""
    text = "".join("".join(lines).split())
    for closing in ")]}":
        text = text.replace("," + closing, closing)
    return text


def source_hash(sources: Iterable[Any]) -> str:
    """Twelve hexadecimal digits over `sources` (functions, classes, partials, modules, C++ files) and what they call.

    Followed are the names that a function's code uses, through this project's techniques; the harness and other
    libraries end the walk (the latter stand in `versions`). A module is named, so that a kernel's file is hashed where
    it cannot be imported, and counts whole.
    """
    found: dict[str, str] = {}
    waiting = [_unwrapped(source) for source in sources]
    while waiting:
        source = waiting.pop()
        name = _full_name(source)
        if name not in found:
            found[name] = _text(source)
            waiting += [used for used in _used(source) if _is_technique(used)]
            found |= _constants(source)
    return hashlib.sha256("\n".join(found[name] for name in sorted(found)).encode()).hexdigest()[:12]


def _unwrapped(source: Any) -> Any:
    """The function behind a partial, a decorator or a Triton kernel."""
    while isinstance(source, partial) or (
        not inspect.isfunction(source) and inspect.isfunction(getattr(source, "fn", None))
    ):
        source = source.func if isinstance(source, partial) else source.fn
    return inspect.unwrap(source) if callable(source) else source


def _full_name(source: Any) -> str:
    if isinstance(source, (str, Path)):
        return getattr(source, "name", source)
    return f"{getattr(source, '__module__', '')}.{getattr(source, '__qualname__', repr(source))}"


def _is_technique(source: Any) -> bool:
    if not (inspect.isfunction(source) or inspect.isclass(source)):
        return False
    project, _, rest = source.__module__.partition(".")
    return project == "labllm" and rest.split(".")[0] not in HARNESS


def _text(source: Any) -> str:
    if isinstance(source, Path):
        return without_comments(source.read_text(encoding="utf-8"))
    if isinstance(source, str):
        spec = find_spec(source)
        if spec is None or spec.origin is None:
            raise ValueError(f"a rung names {source!r} among its sources, and there is no such module")
        return normalised(Path(spec.origin).read_text(encoding="utf-8"))
    try:
        return normalised(inspect.cleandoc(inspect.getsource(source)))
    except SyntaxError:  # a lambda's source is a piece of the statement around it
        return "".join(inspect.getsource(source).split())
    except (OSError, TypeError):  # what a dataclass writes for itself has no source, and its repr an address
        return _full_name(source) if inspect.isfunction(source) else repr(source)


def _functions(source: Any) -> list[FunctionType]:
    if inspect.isclass(source):
        return [member for member in vars(source).values() if inspect.isfunction(member)]
    return [source] if inspect.isfunction(source) else []


def _used(source: Any) -> list[Any]:
    """What the code of `source` names: its globals, its closure, and members of this project's modules."""
    used: list[Any] = []
    for function in _functions(source):
        values = list(_globals(function).values())
        for module in [v for v in values if isinstance(v, ModuleType) and v.__name__.startswith("labllm.")]:
            values += [getattr(module, name) for name in sorted(_names(function.__code__)) if name in vars(module)]
        used += [_unwrapped(v) for v in (*values, *(cell.cell_contents for cell in function.__closure__ or ()))]
    return used


def _constants(source: Any) -> dict[str, str]:
    """Numbers and words among the globals that the code names: a tile's size is part of the code."""
    return {
        f"{function.__module__}.{name}": repr(value)
        for function in _functions(source)
        for name, value in _globals(function).items()
        if isinstance(value, (int, float, str, tuple))
    }


def _globals(function: FunctionType) -> dict[str, Any]:
    return {n: function.__globals__[n] for n in sorted(_names(function.__code__)) if n in function.__globals__}


def _names(code: CodeType) -> set[str]:
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            names |= _names(constant)
    return names


def versions() -> dict[str, str]:
    """Versions of Python and of the libraries that decide a figure, where installed."""
    found = {"python": platform.python_version()}
    for name in VERSIONED:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found
