"""A toy ladder whose rungs behave in every way that a rung can: right, wrong, out of memory, unable, raising."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from labllm.bench import CannotRun, Ladder, Rung, axis
from labllm.roofline import Cost


@dataclass(frozen=True)
class Double:
    """Double `n` random numbers."""

    n: int = axis(64, 64, 4096, unit="numbers")
    dtype: str = axis("float32", "float32", "float64")


def _half_written(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    out[: len(x) // 2] = 2 * x[: len(x) // 2]
    return out


def _memory_gone(x: torch.Tensor) -> torch.Tensor:
    raise torch.OutOfMemoryError("tried to allocate 1 TB")


def _raises(x: torch.Tensor) -> torch.Tensor:
    raise KeyError("lost")


def _no_kernel(x: torch.Tensor) -> torch.Tensor:
    raise CannotRun("no kernel for odd sizes")


def _rounded(x: torch.Tensor) -> torch.Tensor:
    return (2 * x * 8).round() / 8


HONEST = Rung("honest", lambda x: x + x)
LIAR = Rung("liar", lambda x: 2.01 * x)
LOSSY = Rung(
    "rounded", _rounded, own_reference=lambda x, rows: _rounded(x.double() if rows is None else x.double()[rows])
)
BAD_LOSSY = Rung("rounded wrongly", lambda x: _rounded(x) + 1, own_reference=LOSSY.own_reference)
RUNGS = (
    HONEST,
    LIAR,
    LOSSY,
    BAD_LOSSY,
    Rung("half written", _half_written),
    Rung("memory gone", _memory_gone),
    Rung("huge", lambda x: 2 * x, memory=lambda w: 1e18),
    Rung("raises", _raises),
    Rung("no kernel", _no_kernel),
    Rung("refuses", lambda x: 2 * x, refuses=lambda w: "n must be a prime" if w.n == 64 else None),
    Rung("gpu only", lambda x: 2 * x, needs=("cuda",)),
)


def _inputs(w: Double, device: str, seed: int) -> torch.Tensor:
    generator = torch.Generator(device).manual_seed(seed)
    return torch.randn(w.n, 1, generator=generator, device=device, dtype=getattr(torch, w.dtype))


def ladder(*rungs: Rung, **changes: Any) -> Ladder:
    """The toy ladder with `rungs` (default: all of them)."""
    return Ladder(
        name="toy",
        title="Doubling",
        workload=Double,
        inputs=_inputs,
        input_bytes=lambda w: 4 * w.n,
        cost=lambda w: Cost(w.n, 8 * w.n),
        reference=lambda x, rows: 2 * (x if rows is None else x[rows]).double(),
        rungs=rungs or RUNGS,
        sizes={"fast": (Double(64),)},
        **changes,
    )
