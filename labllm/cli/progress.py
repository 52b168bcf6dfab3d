"""`labllm progress`: the exercises, how far they are, and what help was used."""

from __future__ import annotations

import csv
import dataclasses
import sys
from typing import Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table


def progress(
    as_csv: Annotated[bool, typer.Option("--csv", help="Comma-separated values with every field.")] = False,
) -> None:
    """Show every exercise: its state, attempts, hints used, whether the solution was opened, versions and time."""
    from labllm.labs.progress import COLUMNS, entries

    found, trouble = entries()
    for sentence in trouble:
        typer.echo(sentence, err=True)
    if as_csv:
        writer = csv.DictWriter(sys.stdout, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(dataclasses.asdict(entry) | {"lab": f"{entry.lab:02d}"} for entry in found)
        return
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for column in ("lab", "exercise", "state", "tries", "hints", "solution", "changed"):
        table.add_column(column, no_wrap=True)
    for e in found:
        opened = "opened" if e.solution_opened else ""
        table.add_row(f"{e.lab:02d}", e.exercise, e.state, str(e.attempts), str(e.hints_used), opened, e.time[:10])
    Console().print(table)
