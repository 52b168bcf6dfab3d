"""`labllm claims`: what is said about inference, and what the shipped records say."""

from __future__ import annotations

from typing import Annotated

import typer


def claims(
    letter: Annotated[str | None, typer.Argument(help="One claim's letter, for what is known and its sources.")] = None,
) -> None:
    """List every claim, by lab, with its verdict, our figure, machine and date."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from labllm.claims import show, table
    from labllm.claims.display import TITLE

    if letter is not None:
        try:
            typer.echo(str(show(letter)))
        except ValueError as error:
            raise typer.BadParameter(str(error)) from None
        return
    shown = Table(show_lines=True, title=TITLE, title_justify="left", title_style="", pad_edge=False)
    for name, width in (("lab", None), ("", None), ("claim", 22), ("verdict, our figure, machine and date", None)):
        shown.add_column(name, width=width)
    for lab, letter, statement, verdict, *rest in table().rows:
        answer = "\n".join([f"[bold]{escape(verdict)}[/bold]", *(escape(line) for line in rest if line)])
        shown.add_row(lab, letter, escape(statement), answer)
    Console().print(shown)
