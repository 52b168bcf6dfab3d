"""Triton for a notebook's cells: `from labllm.labs.language import tl, triton`, on every system.

Where Triton is not installed (macOS, Windows) both names are a stand-in with which a cell can still define a kernel
and read on; launching it raises `TritonUnavailable`. Invariant: Triton is imported after its interpreter was chosen.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from labllm import hardware  # noqa: F401  chooses Triton's interpreter where Triton cannot compile
from labllm.kernels import TritonUnavailable


class _Missing:
    """Has whatever a kernel's definition names: the decorator, the annotation of a constant."""

    constexpr = int

    def jit(self, fn: Callable[..., Any]) -> _Kernel:
        return _Kernel(fn)


class _Kernel:
    """A kernel that can be defined and not launched; `fn` is the function, as on Triton's own."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        self.fn = fn

    def __call__(self, *arguments: Any, **constants: Any) -> None:
        raise TritonUnavailable(
            f"{self.fn.__name__} is a Triton kernel and Triton is not installed here: it needs Linux, where "
            "`pip install triton` brings it"
        )

    def __getitem__(self, grid: Any) -> _Kernel:
        return self


try:
    import triton
    import triton.language as tl
except ModuleNotFoundError:
    triton = tl = _Missing()  # type: ignore[assignment]

__all__ = ["tl", "triton"]
