"""Small JSON files in the learner's folder: written whole or not at all, and never lost when they cannot be read."""

from __future__ import annotations

import itertools
import json
import os
import tempfile
from pathlib import Path
from typing import Any


def read(path: Path) -> tuple[dict[str, Any], str]:
    """The file's object and a sentence of trouble, empty when all is well. A broken file is set aside, not deleted."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}, ""
    except (ValueError, OSError) as error:
        return {}, f"{path} cannot be read ({error}); {_set_aside(path)}"
    if not isinstance(content, dict):
        return {}, f"{path} holds no JSON object; {_set_aside(path)}"
    return content, ""


def write(path: Path, content: dict[str, Any]) -> None:
    """Replaces the file in one step, so that a reader sees the old or the new one. Raises OSError where it cannot."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(content, file, indent=1, sort_keys=True)
            file.write("\n")
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _set_aside(path: Path) -> str:
    for number in itertools.count(1):
        aside = path.with_name(f"{path.name}.broken-{number}")
        if not aside.exists():
            break
    try:
        path.rename(aside)
    except OSError as error:
        return f"it could not be set aside either ({error})."
    return f"it is kept as {aside.name}, and a new one was begun."
