"""python -m labllm.notebooks [--check | --fill] [FILES]: store labs in their normal form, and the index with them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from labllm.home import checkout
from labllm.notebooks.index import describe, labs, set_next, with_table
from labllm.notebooks.normal import dumps, normalise, read
from labllm.notebooks.picture import FILE, picture, with_picture
from labllm.notebooks.recorded import fill as filled
from labllm.notebooks.recorded import stale


def main(
    files: Annotated[list[Path] | None, typer.Argument(help="Labs; all of notebooks/ when none is named.")] = None,
    check: Annotated[bool, typer.Option("--check", help="Write nothing; say what is not as it should be.")] = False,
    fill: Annotated[
        bool, typer.Option("--fill", help="Run the labs and store what their recorded cells show.")
    ] = False,
) -> None:
    """Store the labs in their normal form and regenerate README's table and the lines 'Next lab'."""
    if check and fill:
        raise typer.BadParameter("--check writes nothing and --fill writes outputs: ask for one of them")
    try:
        complaints = run(checkout(), files or [], check=check, fill=fill)
    except (ValueError, FileNotFoundError) as error:
        sys.exit(str(error))
    for complaint in complaints:
        print(complaint)
    if complaints:
        sys.exit(1)


def run(root: Path, files: list[Path], *, check: bool, fill: bool) -> list[str]:
    """Normalise `files` (all labs of `root` when empty) and the index; return what is left to complain about."""
    records = root / "labllm" / "records"
    all_labs = labs(root / "notebooks")
    complaints = []
    for path in files or [lab.path for lab in all_labs]:
        notebook = filled(path, records) if fill else normalise(read(path))
        set_next(notebook, describe(path, notebook), all_labs)
        complaints += _store(path, dumps(notebook), check)
        complaints += [f"{path.name}: {sentence}" for sentence in stale(notebook, records)]
    readme = root / "README.md"
    shown = picture(records)
    text = with_picture(with_table(readme.read_text(encoding="utf-8"), all_labs), shown)
    if not check and (text.encode() != readme.read_bytes() or not (root / FILE).exists()):
        (root / FILE).parent.mkdir(exist_ok=True)
        (root / FILE).write_bytes(shown.data)
    return complaints + _store(readme, text, check)


def _store(path: Path, text: str, check: bool) -> list[str]:
    if path.read_bytes() == text.encode():
        return []
    if check:
        return [f"{path.name} is not as it is stored: run `python -m labllm.notebooks`"]
    path.write_bytes(text.encode())
    print(f"wrote {path}")
    return []


if __name__ == "__main__":
    typer.run(main)
