"""`labllm records`: which records there are, and which were taken with older code."""

from __future__ import annotations

from typing import Annotated

import typer


def records(
    name: Annotated[str | None, typer.Argument(metavar="LADDER", help="Show one ladder's records in full.")] = None,
    stale: Annotated[bool, typer.Option("--stale", help="List only rungs whose code has changed since.")] = False,
) -> None:
    """List the shipped records and this machine's own."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from labllm.bench import Record, load
    from labllm.bench import stale as older
    from labllm.cli.tables import records_table
    from labllm.ladders import ladder, ladders

    found = load(name)
    if stale:
        found = older(found, ladders())
    console = Console()
    if name is not None:
        try:
            console.print(records_table(ladder(name), found))
        except ValueError as error:
            raise typer.BadParameter(str(error)) from None
        return
    table = Table(title="older code" if stale else None)
    for heading in ("ladder", "machine", "rungs", "records", "latest"):
        table.add_column(
            heading, no_wrap=heading in ("ladder", "latest"), justify="right" if heading == "records" else "left"
        )
    groups: dict[tuple[str, str], list[Record]] = {}
    for record in found:
        groups.setdefault((record.ladder, record.host.name), []).append(record)
    for (one, machine), group in sorted(groups.items()):
        rungs = (
            ", ".join(dict.fromkeys(record.rung for record in group)) if stale else str(len({r.rung for r in group}))
        )
        table.add_row(one, machine, escape(rungs), str(len(group)), max(record.date for record in group))
    console.print(table)
