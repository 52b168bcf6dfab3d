"""A slice of a tensor that one rank holds: what is read from a file, and what is cut from a tensor in memory.

Rows of a matrix [out, in] lie side by side in a file, columns in as many pieces as there are rows; either way only the
slice is read. Invariant: `of(whole)` and `filled(what was read)` are the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

ROWS, COLUMNS = 0, 1


@dataclass(frozen=True)
class Slice:
    """`range` of dimension `dim` of a tensor, with zeros behind it up to `length`."""

    dim: int
    range: range
    length: int

    def of(self, tensor: Tensor) -> Tensor:
        """The slice of a whole tensor; a view where nothing is missing."""
        return self.filled(tensor.narrow(self.dim, self.range.start, len(self.range)))

    def filled(self, tensor: Tensor) -> Tensor:
        """The slice from a tensor that is its range, with zeros behind."""
        missing = self.length - len(self.range)
        return F.pad(tensor, (0, 0) * (tensor.dim() - 1 - self.dim) + (0, missing)) if missing else tensor


Slices = Callable[[str], Slice | None]
"""A tensor's name -> which slice of it is wanted; None: all of it."""


def whole(name: str) -> None:
    """The `Slices` that want all of every tensor."""
