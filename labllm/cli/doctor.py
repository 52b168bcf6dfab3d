"""`labllm doctor`: what this machine can do, and what mends what it cannot."""

from __future__ import annotations

import typer
from rich.console import Console


def doctor() -> None:
    """Say what this machine can do, what is missing and how to mend it; fails when a lab could not run."""
    from labllm.labs import doctor as examine

    report = examine()
    Console().print(report)
    if not report.ok:
        raise typer.Exit(1)
