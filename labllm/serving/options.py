"""Options: a frozen record of named settings that refuses what it does not understand, in one sentence.

A misspelt option that is silently ignored costs an evening; so an unknown name is an error that lists the known ones,
and a value out of range is named with what would be right. pydantic checks; this turns its report, several lines long,
into the first sentence of it. Invariant: an Options that exists is valid, and stays so.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError


class Options(BaseModel):
    """Base of records of settings. Raises ValueError where a field is unknown or its value will not do."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    def __init__(self, **fields: Any) -> None:
        try:
            super().__init__(**fields)
        except ValidationError as error:
            raise ValueError(_sentence(type(self), error)) from None


def _sentence(kind: type[Options], error: ValidationError) -> str:
    first = error.errors(include_url=False)[0]
    name = str(first["loc"][0]) if first["loc"] else ""
    if first["type"] == "extra_forbidden":
        return f"{kind.__name__} has no option {name!r}; it has {', '.join(kind.model_fields)}."
    if first["type"] == "missing":
        return f"{kind.__name__} needs {name!r}."
    said = first["msg"].removeprefix("Value error, ")
    named = said.replace("Input should be", f"{name} must be") if name else said
    return f"{kind.__name__}: {named}; got {first['input']!r}." if name else f"{kind.__name__}: {named}."
