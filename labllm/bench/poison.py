"""Poisoned outputs: memory that a rung allocates without writing it holds NaN, so a row left out shows as an error.

A rung that writes only part of `torch.empty` may pass by luck, because the allocator hands back the last run's
answer. Inside `with Poisoned():` every uninitialised tensor starts as NaN (floats) or a huge value (integers).
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

_UNINITIALISED = (
    "aten::empty",
    "aten::empty_strided",
    "aten::empty_like",
    "aten::empty_permuted",
    "aten::new_empty",
    "aten::new_empty_strided",
)


class Poisoned(TorchDispatchMode):
    """A context in which new uninitialised tensors are filled with NaN or the dtype's largest integer."""

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """What torch.compile made runs as compiled; otherwise it would run unfused, and be checked so."""
        return True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if func.name().split(".")[0] in _UNINITIALISED and isinstance(out, torch.Tensor):
            if out.is_floating_point() and out.element_size() > 1:
                out.fill_(float("nan"))
            elif out.dtype in (torch.int16, torch.int32, torch.int64, torch.uint8, torch.int8):
                out.fill_(torch.iinfo(out.dtype).max)
        return out
