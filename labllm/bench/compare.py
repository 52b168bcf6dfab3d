"""How an answer is judged: relative error against a float64 reference, or equality of token ids.

Error is ||out - ref|| / ||ref||, one tolerance a dtype, all in TOLERANCE. A NaN anywhere is an error of infinity. At
benchmark sizes a whole float64 reference would cost more than the benchmark: 256 seeded random rows of it are
compared.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

TOLERANCE = {"float64": 1e-10, "float32": 1e-5, "float16": 2e-3, "bfloat16": 1.5e-2, "float8": 8e-2}
ROWS = 256


@dataclass(frozen=True)
class Verdict:
    """The error of an answer, the tolerance it must keep, and a sentence when it does not."""

    error: float
    tolerance: float
    reason: str = ""

    @property
    def ok(self) -> bool:
        return self.error <= self.tolerance

    def under(self, tolerance: float) -> Verdict:
        """The same error under another tolerance."""
        return Verdict(self.error, tolerance, "" if self.error <= tolerance else self.reason)


class Comparison(Protocol):
    """Judges `out` against `reference(rows)`; `dtype` is the workload's dtype name."""

    def __call__(self, out: Any, reference: Callable[[Any], Any], dtype: str, seed: int) -> Verdict: ...


def relative_error(out: torch.Tensor, ref: torch.Tensor) -> float:
    """||out - ref|| / ||ref|| in float64; infinite where `out` is not finite or the shapes differ."""
    if out.shape != ref.shape or not bool(torch.isfinite(out).all()):
        return float("inf")
    ref = ref.double().to(out.device)
    norm = torch.linalg.vector_norm(ref).item()
    gap = torch.linalg.vector_norm(out.double() - ref).item()
    return gap / norm if norm else gap


@dataclass(frozen=True)
class Close:
    """Relative error of up to `rows` random rows of the output, flattened to [-1, D].

    Of an output of several tensors, a tuple with equally many rows each, the same rows are compared in every part, and
    the worst part counts: a large one cannot hide a small one.
    """

    rows: int = ROWS

    def __call__(self, out: Any, reference: Callable[[Any], Any], dtype: str, seed: int) -> Verdict:
        def wrong(reason: str) -> Verdict:
            return Verdict(float("inf"), TOLERANCE[dtype], reason)

        parts = _parts(out)
        for part in parts:
            if not isinstance(part, torch.Tensor):
                return wrong(f"the output is a {type(part).__name__}, not a tensor")
        flat = [part.reshape(-1, part.shape[-1]) for part in parts]
        if len({len(part) for part in flat}) != 1:
            return wrong(f"the parts of the output must have equally many rows, got {_shapes(flat)}")
        rows = None
        if len(flat[0]) > self.rows:
            generator = torch.Generator().manual_seed(seed)
            rows = torch.randperm(len(flat[0]), generator=generator)[: self.rows].sort().values.to(flat[0].device)
            flat = [part[rows] for part in flat]
        ref = _parts(reference(rows))
        if [part.shape for part in flat] != [part.shape for part in ref]:
            return wrong(f"the output has rows {_shapes(flat)}, the reference {_shapes(ref)}")
        errors = [relative_error(mine, theirs) for mine, theirs in zip(flat, ref, strict=True)]
        error = max(errors)
        where = f" in part {errors.index(error)} of the output" if len(errors) > 1 else ""
        return Verdict(
            error,
            TOLERANCE[dtype],
            "" if error <= TOLERANCE[dtype] else f"relative error {error:.1e} exceeds {TOLERANCE[dtype]:.0e}{where}",
        )


def _parts(out: Any) -> tuple[Any, ...]:
    return tuple(out) if isinstance(out, tuple) else (out,)


def _shapes(parts: Sequence[torch.Tensor]) -> str:
    return ", ".join(str(list(part.shape)) for part in parts)


@dataclass(frozen=True)
class SameIds:
    """Token ids must be equal: the error is the share that differs, the tolerance zero."""

    tolerance: float = 0.0

    def __call__(self, out: Any, reference: Callable[[Any], Any], dtype: str, seed: int) -> Verdict:
        got, want = torch.as_tensor(out).cpu(), torch.as_tensor(reference(None)).cpu()
        if got.shape != want.shape:
            return Verdict(1.0, self.tolerance, f"ids have shape {list(got.shape)}, expected {list(want.shape)}")
        share = (got != want).double().mean().item()
        return Verdict(share, self.tolerance, "" if share <= self.tolerance else f"{share:.1%} of the ids differ")
