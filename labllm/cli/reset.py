"""`labllm reset NN`: a fresh copy of a lab in `work/`; a copy that was changed stays beside it."""

from __future__ import annotations

from typing import Annotated

import typer


def reset(number: Annotated[str, typer.Argument(help="The lab's number, as in 02.", metavar="NN")]) -> None:
    """Put a fresh copy of a lab into work/ and keep the old one beside it, if it was changed."""
    from labllm import workbook

    try:
        copy, kept = workbook.reset(number)
    except (ValueError, OSError) as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(2) from None
    told = f" Your copy is kept as {kept.name}." if kept else ""
    typer.echo(f"{copy} is fresh.{told} Your progress stays as it is (labllm progress).")
