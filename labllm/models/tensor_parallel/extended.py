"""A bundle of operations of a further kind: the kernels of another one, and what the kind needs besides."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, TypeVar

from labllm.models.operations import Operations

Kind = TypeVar("Kind", bound=Operations)


def extended(kind: type[Kind], operations: Operations, name: str, **further: Any) -> Kind:
    """A `kind` called `name` with the kernels of `operations`; `further` are the fields that those do not have."""
    kernels = {field.name: getattr(operations, field.name) for field in fields(kind) if field.name not in further}
    return kind(**kernels | {"name": name}, **further)
