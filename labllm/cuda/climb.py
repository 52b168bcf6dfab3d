"""The climb of one product under a roof: each kernel at the FLOPs for every byte that it asks for, and what was gained.

A kernel that asks for a byte need not have it from memory. So a point may stand above the slope, and its place says
nothing about what limits it: what its caches answered, its arithmetic or its waiting may set its pace as well.
"""

from __future__ import annotations

from collections.abc import Sequence

from labllm.bench import Record, Roof
from labllm.roofline import attainable_rate
from labllm.ui import Picture, roofs, show
from labllm.ui.roofs import Mark
from labllm.ui.series import short_name
from labllm.ui.style import count, engineering, times

LIBRARY = "torch.matmul"


def climb(records: Sequence[Record], roof: Roof) -> Picture:
    """The timed `records` of one size and dtype of `gemm-by-hand`, in the order of the ladder.

    Raises ValueError where there is none, and where `roof` knows no rate for their dtype.
    """
    if not records:
        raise ValueError("a climb needs at least one timed record")
    marks = [Mark(r.rung, r.moved.flops / r.moved.bytes, r.flop_rate or 0.0) for r in records]
    figure = roofs.chart([roof], marks, records[0].workload["dtype"], title="The climb of one product")
    return show(figure, conclusion(records, roof))


def conclusion(records: Sequence[Record], roof: Roof) -> str:
    """What the kernels by hand gained in time and in bytes asked for, how near they come, and who stands above."""
    w, took = records[0].workload, {r.rung: r for r in records}
    mine = [r for r in records if r.rung != LIBRARY]
    first, best = mine[0], min(mine, key=lambda r: r.seconds)
    text = f"A product of side {count(w['n'])} in {w['dtype']} on {short_name(records[0].host.name)}: {best.rung} is "
    text += f"{times(first.seconds / best.seconds)} as fast as {first.rung}"
    asked = [engineering(r.moved.bytes, "B") for r in (first, best)]
    text += f" and asks for {asked[1]} in place of {asked[0]}" if best is not first else ""
    if LIBRARY in took:
        text += f"; it reaches {engineering(took[LIBRARY].seconds / best.seconds, '%')} of {LIBRARY}'s speed"
    above = [r.rung for r in mine if r.flop_rate > attainable_rate(*_place(r, roof))]
    if above:
        text += f". Caches answered much of what these asked for, so they stand above the slope: {', '.join(above)}"
    return f"{text}."


def _place(r: Record, roof: Roof) -> tuple[float, float, float]:
    return r.moved.flops / r.moved.bytes, roof.flops[r.workload["dtype"]], roof.bandwidth
