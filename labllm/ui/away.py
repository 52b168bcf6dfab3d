"""Curves of a machine that the reader need not have, from the records that the package ships.

What is drawn is the same on every machine, whatever was measured there: that is what a stored picture needs. Where no
record is shipped the picture stays empty and its sentence says so.

A picture may show the nearest setting that was recorded, since its caption names it; figures computed from records
have no caption, so `at` takes a setting exactly or not at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from labllm.bench import Ladder, Record
from labllm.bench.recorded import H200, shipped
from labllm.ui import curves
from labllm.ui.picture import Picture, show
from labllm.ui.series import at_setting, field, short_name
from labllm.ui.series import setting as setting_of
from labllm.ui.style import page


def at(
    ladder: Ladder, x: str, host: str = H200, records: Iterable[Record] | None = None, **setting: Any
) -> list[Record]:
    """The shipped records of `host` over field `x` at exactly this `setting`; none where it was not recorded.

    Raises ValueError for a field that the ladder's workload does not have.
    """
    for name in (x, *setting):
        field(ladder, name)
    found, differs = at_setting(shipped(ladder.name) if records is None else records, x, setting, host)
    return [] if differs else found


def recorded(
    ladder: Ladder,
    x: str,
    y: str = "time",
    *,
    host: str = H200,
    rungs: Sequence[str] | None = None,
    records: Iterable[Record] | None = None,
    **setting: Any,
) -> Picture:
    """Quantity `y` over field `x` as `host` recorded it, with its sentence; `rungs` (default: all) are drawn.

    Where `setting` was not recorded the nearest one is drawn, and the caption says which.

    Raises ValueError as `curves.chart` does.
    """
    nearest, _ = at_setting(shipped(ladder.name) if records is None else records, x, setting, host)
    found = [r for r in nearest if rungs is None or r.rung in rungs]
    if not found:
        sentence = f"No record of the ladder {ladder.name} on {short_name(host)} comes with this version."
        fig, ax = page(ladder.title, sentence, height=0.1)
        ax.set_axis_off()
        return show(fig, sentence)
    options = {"wanted": setting_of(found[0], x) | setting, "here": "elsewhere"}
    return show(curves.chart(ladder, found, x, y, **options), curves.conclusion(ladder, found, x, y, **options))
