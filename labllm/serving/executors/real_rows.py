"""Sampling parameters of a step's rows, made anew only where other requests sample than in the step before.

While the same requests decode, each is one position further on and nothing else changes, so the batch moves on by
itself, on the device. Invariant: row b of the batch is that of the b-th request of `step.sampling`.
"""

from __future__ import annotations

from labllm.serving.request import Request
from labllm.serving.sampling import Sampler, SamplingBatch, SamplingRow
from labllm.serving.scheduler import Chunk, ScheduledStep


class Rows:
    """The batches of `sampler`, step after step."""

    def __init__(self, sampler: Sampler) -> None:
        self._sampler = sampler
        self._requests: list[Request] = []
        self._batch: SamplingBatch | None = None

    def batch(self, step: ScheduledStep) -> SamplingBatch | None:
        """The parameters of the rows that sample, in order; None where none does."""
        for request in step.seated:
            if request.params.repetition_penalty != 1:
                self._sampler.admit(request.seat, request.ids(0, request.num_known))
        requests = step.sampling
        if self._batch is not None and requests == self._requests:
            self._batch = self._batch.next()
        else:
            self._requests = requests
            rows = [_row(chunk) for chunk in step.chunks if chunk.samples]
            self._batch = SamplingBatch.of(rows, self._sampler.device) if rows else None
        return self._batch


def _row(chunk: Chunk) -> SamplingRow:
    request = chunk.request
    position = chunk.num_computed + chunk.num_new - request.num_prompt
    return SamplingRow(request.params, request.seed, position, request.seat)
