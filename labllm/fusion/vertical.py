"""What the ladders of vertical fusion share: work on `[T, H]` that is counted in passes over it.

Compulsory is every input once and every output once. Eager rungs move what their launches write and read again, and
pay a launch for each; the compiler's rung and the Triton rungs move what they must. Nothing here multiplies matrices,
so memory sets every pace: where a GEMM beside it takes longer, the gain is that much smaller.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from labllm.bench import Rung, axis, torch_dtype
from labllm.fusion import compiled
from labllm.roofline import DTYPE_BYTES, Cost

ROWS = (1, 4, 16, 64, 256, 1024, 4096, 16384)
HIDDEN = (64, 256, 768, 1024, 2048, 4096, 5120, 8192, 14336, 16384)
DTYPES = ("float32", "float16", "bfloat16")


@dataclass(frozen=True)
class Rows:
    """`rows` tokens of `hidden` elements."""

    rows: int = axis(4096, *ROWS, unit="tokens", label="rows")
    hidden: int = axis(4096, *HIDDEN, label="hidden")
    dtype: str = axis("float16", *DTYPES)


def draw(w: Any, device: str, seed: int) -> Callable[..., Tensor]:
    """A function that draws normal tensors of a shape, in the workload's dtype."""
    generator = torch.Generator(device).manual_seed(seed)
    return lambda *shape: torch.randn(shape, device=device, dtype=torch_dtype(w), generator=generator)


def picked(rows: Tensor | None, *tensors: Tensor) -> list[Tensor]:
    """`rows` of each tensor (None: all) in float64."""
    return [(tensor if rows is None else tensor[rows]).double() for tensor in tensors]


def passes_cost(flops: float, passes: float, weights: int = 0) -> Callable[[Any], Cost]:
    """`flops` an element, `passes` over [T, H] and `weights` over [H]."""

    def cost(w: Any) -> Cost:
        e, elements = DTYPE_BYTES[w.dtype], w.rows * w.hidden
        return Cost(flops * elements, (passes * elements + weights * w.hidden) * e)

    return cost


def room(passes: float) -> Callable[[Any], float]:
    """Bytes of `passes` tensors [T, H]."""
    return lambda w: passes * w.rows * w.hidden * DTYPE_BYTES[w.dtype]


def compiled_rung(function: Callable[..., Any], **more: Any) -> Rung:
    """What torch.compile makes of an unfused `function`, called with the inputs."""
    return Rung(
        "torch.compile",
        compiled.run,
        partial(compiled.compiled, function),
        about="the compiler writes one kernel for the whole chain",
        refuses=compiled.too_slow,
        sources=(function,),
        **more,
    )


def triton_rung(name: str, run: Callable[[Any], Any], about: str, *kernels: str, **more: Any) -> Rung:
    """A rung whose kernels are in kernels/, in the files that `kernels` names."""
    sources = tuple(f"labllm.kernels.{kernel}" for kernel in kernels)
    return Rung(name, run, about=about, needs=("triton",), sources=sources, **more)


def sizes(make: Callable[[int, int, str], Any]) -> dict[str, tuple[Any, ...]]:
    """`make(rows, hidden, dtype)`: the shapes of the bars, and a curve over rows and one over hidden."""
    curve = (*((r, 4096) for r in ROWS), *((16384, h) for h in HIDDEN if h != 4096), (1, 8192), (64, 14336))
    return {
        "fast": (make(16, 256, "float32"), make(4, 768, "float32")),
        "small": (
            *(make(r, 1024, "float32") for r in ROWS[:6]),
            *(make(64, h, "float32") for h in HIDDEN if h != 1024),
        ),
        "full": (*(make(r, h, "bfloat16") for r, h in curve), make(16384, 4096, "float16")),
    }
