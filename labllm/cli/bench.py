"""`labllm bench LADDER`: climb a ladder on this machine and, with --save, keep the records."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def bench(
    names: Annotated[list[str], typer.Argument(metavar="LADDER...", help="Ladders, or 'all'.")],
    sizes: Annotated[str, typer.Option(help="fast, small or full: a ladder's named list of workloads.")] = "small",
    rungs: Annotated[list[str] | None, typer.Option("--rung", help="Only this rung; give it again for more.")] = None,
    device: Annotated[str | None, typer.Option(help="cuda or cpu; default: cuda where there is one.")] = None,
    save: Annotated[bool, typer.Option("--save", help="Keep the records in $LABLLM_HOME/records.")] = False,
    into: Annotated[Path | None, typer.Option(help="With --save: another folder for the records.")] = None,
) -> None:
    """Check and time every rung of a ladder, beside its peers and the roof measured in the same run."""
    from rich.console import Console
    from tqdm import tqdm

    from labllm.bench import ceilings, measure
    from labllm.bench import save as keep
    from labllm.cli.tables import records_table
    from labllm.hardware import default_device
    from labllm.ladders import LADDERS, ladder

    try:
        chosen = [ladder(name) for name in (LADDERS if names == ["all"] else names)]
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    try:
        chosen = [one.only(*rungs) if rungs else one for one in chosen]
    except KeyError as error:
        raise typer.BadParameter(error.args[0]) from None
    for one in chosen:
        if sizes not in one.sizes:
            raise typer.BadParameter(f"{one.name} has no sizes {sizes!r}; it has {', '.join(one.sizes)}")
    device = device or default_device()
    known = sorted({"cpu", default_device()})
    if device not in known:
        raise typer.BadParameter(f"there is no device {device!r} here; choose {' or '.join(known)}")
    roof = ceilings(device, fresh=True)
    console = Console()
    for one in chosen:
        records = []
        for workload in tqdm(one.sizes[sizes], desc=one.name, disable=None):
            records += measure(one, workload, device=device, roof=roof)
            if save:
                keep(records, into)
        console.print(records_table(one, records))
