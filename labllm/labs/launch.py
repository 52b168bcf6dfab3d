"""Launches a kernel that somebody else wrote, with a fence around the memory that is its own.

A GPU stops nobody from reading or writing beyond a matrix. So what an exercise hands to a kernel lies inside a larger
buffer of NaN: a load that goes too far spoils the answer, and a store that goes too far is found afterwards.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from labllm.labs.exercise import Function
from labllm.labs.language import triton

GUARD = 1024  # numbers before and behind: more than one program of an exercise can reach


@dataclass(frozen=True)
class Fenced:
    """`inside` is the matrix, a view of `around`, which holds NaN everywhere else."""

    inside: Tensor
    around: Tensor

    def check(self, name: str) -> None:
        """Raises IndexError, calling the matrix `name`, where anything but `inside` was written."""
        written = ~self.around.isnan()
        written.as_strided(self.inside.shape, self.inside.stride(), self.inside.storage_offset()).fill_(False)
        if count := int(written.sum()):
            raise IndexError(f"{count} numbers were written outside {name}; there lies nothing of yours")


def fenced(values: Tensor, stride: int | None = None) -> Fenced:
    """The `values` [T, ...] with a fence around; `stride` elements lie from row to row (default: as many as it has)."""
    rows, width = len(values), values[0].numel()
    stride = stride or width
    size = rows * stride
    around = torch.full((size + 2 * GUARD,), float("nan"), dtype=values.dtype, device=values.device)
    inside = around[GUARD : GUARD + size].view(rows, stride)[:, :width].unflatten(1, values.shape[1:] or (1,))
    inside = inside if values.dim() > 1 else inside.squeeze(1)
    return Fenced(inside.copy_(values), around)


def launch(kernel: Function, grid: tuple[int, ...], *arguments: Any, **constants: Any) -> None:
    """Run `kernel`, Triton with or without its decorator. Raises what the kernel raises, free of what wraps it."""
    function = kernel if hasattr(kernel, "fn") else _decorated(kernel)
    try:
        with np.errstate(all="ignore"):  # the interpreter computes in NumPy, which warns where a GPU does not
            function[grid](*arguments, **constants)
    except Exception as error:
        while error.__cause__ is not None:
            error = error.__cause__
        raise error from None


@functools.lru_cache(maxsize=64)
def _decorated(kernel: Function) -> Any:
    """One decorated form a function, so that calling it again compiles nothing."""
    return triton.jit(kernel)
