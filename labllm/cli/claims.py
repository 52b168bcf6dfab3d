"""`labllm claims`: what is said about inference, and what the shipped records say."""

from __future__ import annotations

from typing import Annotated

import typer


def claims(
    letter: Annotated[str | None, typer.Argument(help="One claim's letter, for what is known and its sources.")] = None,
) -> None:
    """List every claim with its verdict, our figure, machine and date."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from labllm.claims import show, table
    from labllm.claims.display import COLUMNS

    if letter is not None:
        try:
            typer.echo(str(show(letter)))
        except ValueError as error:
            raise typer.BadParameter(str(error)) from None
        return
    shown = Table(*COLUMNS, show_lines=True)
    for row in table().rows:
        shown.add_row(*map(escape, row))
    Console().print(shown)
