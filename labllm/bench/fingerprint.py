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
import sys
import tokenize
from collections.abc import Iterable
from functools import lru_cache, partial
from importlib import metadata
from types import ModuleType
from typing import Any

VERSIONED = ("torch", "triton", "transformers", "flashinfer-python", "liger-kernel")


def normalised(source: str) -> str:
    """Python source without comments, docstrings, white space and trailing commas."""
    cut: list[tuple[tuple[int, int], tuple[int, int]]] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) and node.body:
            first = node.body[0]
            if (
                isinstance(first, ast.Expr)
                and isinstance(first.value, ast.Constant)
                and isinstance(first.value.value, str)
            ):
                cut.append(((first.lineno, 0), (first.end_lineno or first.lineno, len(source))))
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            cut.append((token.start, (token.start[0], len(source))))
    lines = source.splitlines()
    for (row, col), (end_row, _) in cut:
        for number in range(row, end_row + 1):
            lines[number - 1] = lines[number - 1][:col] if number == row else ""
    text = "".join("".join(lines).split())
    for closing in ")]}":
        text = text.replace("," + closing, closing)
    return text


@lru_cache(maxsize=256)
def _module_text(name: str) -> str:
    return normalised(inspect.getsource(sys.modules[name]))


def _text(source: Any) -> str:
    while isinstance(source, partial):
        source = source.func
    module = source if isinstance(source, ModuleType) else inspect.getmodule(source)
    if module is None or module.__name__ == "__main__" or not getattr(module, "__file__", None):
        try:
            return normalised(inspect.cleandoc(inspect.getsource(source)))
        except (OSError, TypeError, SyntaxError):
            return repr(source)
    return _module_text(module.__name__)


def source_hash(sources: Iterable[Any]) -> str:
    """Twelve hexadecimal digits over the modules that define `sources` (functions, partials or modules)."""
    texts = sorted({_text(source) for source in sources})
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:12]


def versions() -> dict[str, str]:
    """Versions of Python and of the libraries that decide a figure, where installed."""
    found = {"python": platform.python_version()}
    for name in VERSIONED:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found
