"""How an answer is judged: relative error against a float64 reference, or equality of token ids.

Error is ||out - ref|| / ||ref||, one tolerance a dtype, all in TOLERANCE. A NaN anywhere is an error of infinity. At
benchmark sizes a whole float64 reference would cost more than the benchmark: 256 seeded random rows of it are
compared.
"""

from __future__ import annotations

from collections.abc import Callable
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
    """Relative error of up to `rows` random rows of the output, flattened to [-1, D]."""

    rows: int = ROWS

    def __call__(self, out: Any, reference: Callable[[Any], Any], dtype: str, seed: int) -> Verdict:
        if not isinstance(out, torch.Tensor):
            return Verdict(float("inf"), TOLERANCE[dtype], f"the output is a {type(out).__name__}, not a tensor")
        flat = out.reshape(-1, out.shape[-1])
        rows = None
        if len(flat) > self.rows:
            generator = torch.Generator().manual_seed(seed)
            rows = torch.randperm(len(flat), generator=generator)[: self.rows].sort().values.to(out.device)
            flat = flat[rows]
        ref = reference(rows)
        if flat.shape != ref.shape:
            return Verdict(
                float("inf"),
                TOLERANCE[dtype],
                f"the output has rows {list(flat.shape)}, the reference {list(ref.shape)}",
            )
        error = relative_error(flat, ref)
        return Verdict(
            error,
            TOLERANCE[dtype],
            "" if error <= TOLERANCE[dtype] else f"relative error {error:.1e} exceeds {TOLERANCE[dtype]:.0e}",
        )


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
