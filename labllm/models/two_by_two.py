"""The two-by-two experiment of `attention_block` read from records: what each choice saves, alone and together.

Saved is 1 - with / without, of the time or of the peak memory. Effects of this kind do not add up: what is saved first
is not there to be saved again, so `both` is measured and never the sum.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, NamedTuple

from labllm.bench import Record
from labllm.models.attention_block import FUSED_FLASH, FUSED_SCORES, SEPARATE_FLASH, SEPARATE_SCORES

What = Literal["time", "memory"]
CELLS = (SEPARATE_SCORES, FUSED_SCORES, SEPARATE_FLASH, FUSED_FLASH)


class Saved(NamedTuple):
    """Shares saved, 0 to 1 (negative: lost): by one projection for three, by scores that stay on the chip, by both."""

    one_product: float
    one_product_beside_scores: float
    no_scores: float
    both: float


class Square(NamedTuple):
    """The four records at one prompt length."""

    length: int
    cells: dict[str, Record]

    def saved(self, what: What) -> Saved:
        """What each choice saves. `one_product` is measured beside flash attention, where nothing hides it."""
        three, one, three_flash, one_flash = (_of(self.cells[name], what) for name in CELLS)
        return Saved(1 - one_flash / three_flash, 1 - one / three, 1 - three_flash / three, 1 - one_flash / three)


def squares(records: Iterable[Record]) -> dict[tuple[tuple[str, Any], ...], list[Square]]:
    """Complete squares by setting (batch, dtype, machine, model), each by length."""
    found: dict[tuple, dict[int, dict[str, Record]]] = {}
    for r in records:
        if r.ladder == "attention-block" and r.seconds and r.peak_bytes:
            rest = {name: value for name, value in r.workload.items() if name != "length"} | {"machine": r.host.name}
            found.setdefault(tuple(sorted(rest.items())), {}).setdefault(r.workload["length"], {})[r.rung] = r
    complete = {
        setting: [Square(n, cells) for n, cells in sorted(by_length.items()) if set(CELLS) <= cells.keys()]
        for setting, by_length in found.items()
    }
    return {setting: curve for setting, curve in complete.items() if curve}


def rows(curve: Iterable[Square]) -> list[dict[str, Any]]:
    """One row a length: what is saved of time and of memory, in per cent, for a table."""
    table = []
    for square in curve:
        row: dict[str, Any] = {"prompt": square.length}
        for what in ("time", "memory"):
            saved = square.saved(what)
            row |= {
                f"one product, {what} (%)": 100 * saved.one_product,
                f"no scores, {what} (%)": 100 * saved.no_scores,
                f"both, {what} (%)": 100 * saved.both,
            }
        table.append(row)
    return table


def _of(record: Record, what: What) -> float:
    return (record.seconds if what == "time" else record.peak_bytes) or 0.0
