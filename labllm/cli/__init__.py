"""`labllm`: one small command a file; each imports what it needs when it runs, so that `labllm --help` is quick."""

from __future__ import annotations

import typer

from labllm.cli.bench import bench
from labllm.cli.claims import claims
from labllm.cli.doctor import doctor
from labllm.cli.progress import progress
from labllm.cli.records import records
from labllm.cli.reset import reset
from labllm.cli.torchrun import torchrun

app = typer.Typer(
    name="labllm",
    help="A laboratory for LLM inference.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_show_locals=False,
)
for command in (doctor, bench, records, claims, progress, reset, torchrun):
    app.command()(command)
