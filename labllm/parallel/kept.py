"""A value that stays with the ranks: a shard of a model is neither sent to the starter nor back.

`Workers.keep` returns a Kept; handed to `Workers.call` as an argument, it stands for each rank's own value.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, eq=False)
class Kept:
    """The value that call `number` made on every rank; it lives as long as this object is held."""

    number: int
