"""Peak memory of one call, in bytes above what was held before it.

On CUDA the allocator keeps the figure. On a CPU there is none, so a dispatch mode follows every storage that torch
operators return, from birth to death. Neither workspace inside an operator nor what torch.compile's programs allocate
shows there; on CUDA both do.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class LiveBytes(TorchDispatchMode):
    """Counts bytes of storages born in the context; `peak` is the most that lived at once."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.peak = 0
        self._known: set[int] = set()

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """What torch.compile made runs as compiled, as when it is timed."""
        return True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        known = {t.untyped_storage()._cdata for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)}
        out = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(out):
            if isinstance(tensor, torch.Tensor) and tensor.untyped_storage()._cdata not in known | self._known:
                self._born(tensor.untyped_storage())
        return out

    def _born(self, storage: Any) -> None:
        key, size = storage._cdata, storage.nbytes()
        self._known.add(key)
        self.now += size
        self.peak = max(self.peak, self.now)
        weakref.finalize(storage, self._died, key, size)

    def _died(self, key: int, size: int) -> None:
        self._known.discard(key)
        self.now -= size


def peak_bytes(call: Callable[[], Any], device: str) -> tuple[Any, int]:
    """Run `call` once; return its result and the peak bytes that it allocated on `device`."""
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize()
        held = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        out = call()
        torch.cuda.synchronize()
        return out, torch.cuda.max_memory_allocated() - held
    with LiveBytes() as live:
        out = call()
    return out, live.peak
