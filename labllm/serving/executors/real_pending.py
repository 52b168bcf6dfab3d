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


class GpuClock:
    """The GPU's own seconds, by events in its stream.

    Each end is counted from the one before: an event's distance is a float32 of milliseconds, too coarse over hours.
    """

    def __init__(self) -> None:
        self._last, self._seconds = self.mark(), 0.0

    @staticmethod
    def mark() -> torch.cuda.Event:
        """A moment behind everything that is queued."""
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def span(self, start: torch.cuda.Event, end: torch.cuda.Event) -> tuple[float, float]:
        """When the GPU passed these two, which it has; ends must be asked for in their order."""
        self._seconds += self._last.elapsed_time(end) / 1e3
        self._last = end
        return self._seconds - start.elapsed_time(end) / 1e3, self._seconds


class Arriving:
    """`sampled` of one step; `counts` are the `logprobs` that each row asked for; on a GPU its clock and the start."""

    def __init__(
        self,
        sampled: Sampled | None,
        counts: Sequence[int | None],
        clock: GpuClock | None = None,
        start: torch.cuda.Event | None = None,
    ) -> None:
        self._counts, self._clock, self._start = counts, clock, start
        self._ids = None if sampled is None else _sent(sampled.ids)
        logprobs = None if sampled is None else sampled.logprobs
        self._logprobs = None if logprobs is None else Logprobs(*map(_sent, logprobs))
        self._end = None if clock is None else clock.mark()

    def wait(self) -> Tokens:
        """The ids on the host."""
        span = None
        if self._end is not None:
            self._end.synchronize()
            span = self._clock.span(self._start, self._end)
        logprobs = None if self._logprobs is None else self._logprobs.on_host(self._counts)
        return Tokens([] if self._ids is None else self._ids.tolist(), logprobs, span)


def _sent(tensor: Tensor) -> Tensor:
    """A copy on the host that may still be on its way."""
    if not tensor.is_cuda:
        return tensor
    return torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True).copy_(tensor, non_blocking=True)
