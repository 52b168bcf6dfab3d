"""A table of numbers with the sentence that it proves, for a cell to end in: the table's sister of `ui.show`."""

from __future__ import annotations

import html
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pandas as pd

from labllm.ui import table


@dataclass(frozen=True)
class Listing:
    """A frame and its sentence, in the notebook's own colours or as text."""

    frame: pd.DataFrame
    sentence: str

    def __str__(self) -> str:
        return f"{self.frame.to_string(index=False, na_rep='-')}\n{self.sentence}".strip()

    __repr__ = __str__

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        said = f'<p style="margin:.4em 0">{html.escape(self.sentence)}</p>' if self.sentence else ""
        return {"text/html": table.html(self.frame) + said, "text/plain": str(self)}


def listing(rows: pd.DataFrame | Iterable[dict[str, Any]], sentence: str = "") -> Listing:
    """`rows` (a frame, or one dictionary a row) as a table; headers hold the units. Raises ValueError without a row."""
    frame = rows if isinstance(rows, pd.DataFrame) else pd.DataFrame(list(rows))
    if frame.empty:
        raise ValueError("a table needs at least one row")
    return Listing(frame, sentence)
