"""Eight-bit codes with scales, and how an answer made of them is judged.

A value is about code * scale. A right kernel's code lies within half a step of value / scale, and a value halfway
between two codes may fall either way, so codes are not compared with codes: what counts as error is the part of the
distance to the unrounded float64 quotient that rounding does not explain. One step of INT8 is 1; one of FP8 E4M3, with
three bits behind the leading one, is 2^(floor(log2 |x|) - 3), and 2^-9 near zero.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from labllm.bench import Close
from labllm.bench.compare import Verdict

LIMITS = {torch.int8: 127.0, torch.float8_e4m3fn: 448.0}
NAMES = {"int8": torch.int8, "float8": torch.float8_e4m3fn}


class Codes(NamedTuple):
    """codes [R, ...] int8 or float8_e4m3fn (in a reference: float64, not rounded) and the scale they broadcast with."""

    codes: Tensor
    scale: Tensor

    def values(self) -> Tensor:
        """codes * scale, float64."""
        return self.codes.double() * self.scale.double()


@dataclass(frozen=True)
class CloseCodes:
    """As `bench.Close`, for an output with parts that are `Codes`, one of its rows each.

    Where the reference's part is `Codes` too, rounding is allowed for and scales of rows are compared as well; where it
    is a tensor, the distance of code * scale to it counts, rounding included.
    """

    rows: int = Close.rows

    def __call__(self, out: Any, reference: Callable[[Any], Any], dtype: str, seed: int) -> Verdict:
        parts = [part if isinstance(part, Codes) else Codes(part, part) for part in out]
        count, picked = len(parts[0].codes), None
        if count > self.rows:
            picked = torch.randperm(count, generator=torch.Generator().manual_seed(seed))[: self.rows].sort().values
            picked = picked.to(parts[0].codes.device)
        pairs: list[tuple[Tensor, Tensor]] = []
        for part, mine, theirs in zip(out, parts, reference(picked), strict=True):
            codes = mine.codes if picked is None else mine.codes[picked]
            if not isinstance(part, Codes):
                pairs.append((codes, theirs))
                continue
            by_row = mine.scale.dim() == codes.dim() and len(mine.scale) == count
            scale = mine.scale[picked] if by_row and picked is not None else mine.scale
            if not isinstance(theirs, Codes):
                pairs.append((Codes(codes, scale).values(), theirs))
                continue
            pairs.append((unexplained(codes, theirs.codes) * theirs.scale, theirs.values()))
            if by_row:
                pairs.append((scale, theirs.scale))
        flat = [(mine.flatten(1), theirs.flatten(1)) for mine, theirs in pairs]
        return Close()(tuple(mine for mine, _ in flat), lambda _: tuple(theirs for _, theirs in flat), dtype, seed)


def unexplained(codes: Tensor, exact: Tensor) -> Tensor:
    """exact [R, ...] float64, moved towards `codes` by as much of their distance as exceeds half a step."""
    gap = codes.double() - exact
    return exact + gap.sign() * (gap.abs() - half_step(exact, codes.dtype)).clamp_min(0)


def half_step(exact: Tensor, dtype: torch.dtype) -> Tensor:
    """Half the distance between the codes of `dtype` around `exact` [...] float64."""
    if dtype == torch.int8:
        return torch.full_like(exact, 0.5)
    return torch.exp2(exact.abs().clamp_min(2.0**-6).log2().floor() - 4)
