"""`labllm bench LADDER`: climb a ladder on this machine and, with --save, keep the records."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from labllm.bench import Ladder


def bench(
    names: Annotated[list[str], typer.Argument(metavar="LADDER...", help="Ladders, or 'all'.")],
    sizes: Annotated[str, typer.Option(help="fast, small or full: a ladder's named list of workloads.")] = "small",
    rungs: Annotated[list[str] | None, typer.Option("--rung", help="Only this rung; give it again for more.")] = None,
    where: Annotated[
        list[str] | None,
        typer.Option(metavar="FIELD=VALUE[,VALUE]", help="Only workloads of these values; give it again to narrow."),
    ] = None,
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
    for condition in where or []:
        chosen = [_narrowed(one, sizes, condition) for one in chosen]
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


def _narrowed(ladder: Ladder, sizes: str, condition: str) -> Ladder:
    """The ladder with the workloads of `sizes` that fit 'field=value,value'. Raises BadParameter where none does."""
    field, equals, told = condition.partition("=")
    workloads = ladder.sizes[sizes]
    if not equals or field not in vars(workloads[0]):
        fields = ", ".join(vars(workloads[0]))
        raise typer.BadParameter(f"{condition!r} is not FIELD=VALUE with a field of {ladder.name}: {fields}")
    kept = tuple(w for w in workloads if str(getattr(w, field)) in told.split(","))
    if not kept:
        values = ", ".join(dict.fromkeys(str(getattr(w, field)) for w in workloads))
        raise typer.BadParameter(f"no workload of {ladder.name} has {condition}; in sizes {sizes!r} there are {values}")
    return replace(ladder, sizes={**ladder.sizes, sizes: kept})
