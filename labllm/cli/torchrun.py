"""`labllm torchrun SCRIPT`: the line that starts a script on several ranks, here or on several nodes."""

from __future__ import annotations

from typing import Annotated

import typer


def torchrun(
    script: Annotated[str, typer.Argument(help="The Python file to run; its work stands in `with joined():`.")],
    arguments: Annotated[list[str] | None, typer.Argument(help="What the script gets.")] = None,
    nodes: Annotated[int, typer.Option(help="Machines.")] = 1,
    gpus: Annotated[int | None, typer.Option(help="Ranks on each of them; default: as many as this has GPUs.")] = None,
    address: Annotated[str, typer.Option(help="With several nodes: where they meet, the address of one.")] = "HOST",
    port: Annotated[int, typer.Option(help="With several nodes: a port that it has free.")] = 29500,
) -> None:
    """Print the torchrun line for a script, on one node or to be run on each of several; starts nothing."""
    import torch

    from labllm.parallel.torchrun import remark, torchrun_line

    gpus = gpus or torch.cuda.device_count() or 1
    try:
        line = torchrun_line(script, arguments or (), nodes=nodes, gpus=gpus, address=address, port=port)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    typer.echo(line)
    if nodes > 1:
        meets = "; put the address of one of them for HOST" if address == "HOST" else ""
        typer.echo(f"Run this line on each of the {nodes} nodes{meets}.", err=True)
    typer.echo(remark(gpus), err=True)
