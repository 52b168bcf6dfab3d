"""Ids on their way to the host: a copy into pinned memory, and an event that says when it is there.

Reading an id straight from the GPU would wait for everything that was queued, the next step included. The event waits
for this step alone. On a CPU the ids are there at once.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from labllm.serving.executor import Tokens
from labllm.serving.sampling import Logprobs, Sampled


class Arriving:
    """`sampled` of one step; `counts` are the `logprobs` that each row asked for."""

    def __init__(self, sampled: Sampled | None, counts: Sequence[int | None]) -> None:
        self._counts = counts
        self._ids = None if sampled is None else _sent(sampled.ids)
        logprobs = None if sampled is None else sampled.logprobs
        self._logprobs = None if logprobs is None else Logprobs(*map(_sent, logprobs))
        self._event: torch.cuda.Event | None = None
        if sampled is not None and sampled.ids.is_cuda:
            self._event = torch.cuda.Event()
            self._event.record()

    def wait(self) -> Tokens:
        """The ids on the host."""
        if self._ids is None:
            return Tokens([])
        if self._event is not None:
            self._event.synchronize()
        logprobs = None if self._logprobs is None else self._logprobs.on_host(self._counts)
        return Tokens(self._ids.tolist(), logprobs)


def _sent(tensor: Tensor) -> Tensor:
    """A copy on the host that may still be on its way."""
    if not tensor.is_cuda:
        return tensor
    return torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True).copy_(tensor, non_blocking=True)
