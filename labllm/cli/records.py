"""`labllm records`: which records there are, and which were taken with older code."""

from __future__ import annotations

from collections import Counter
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

    from labllm.bench import load
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
    table = Table("ladder", "machine", "rung", "records", "latest", title="older code" if stale else None)
    counts = Counter((r.ladder, r.host.name, r.rung) for r in found)
    for (one, machine, rung), count in sorted(counts.items()):
        latest = max(r.date for r in found if (r.ladder, r.host.name, r.rung) == (one, machine, rung))
        table.add_row(one, machine, escape(rung), str(count), latest)
    console.print(table)
