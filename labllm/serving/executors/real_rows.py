"""Sampling parameters of a step's rows: named on the host, as tensors where the model is.

While the same requests decode, each is one position further on and nothing else changes. So the host names the rows
only where other requests sample than in the step before; until then the batch moves on by itself, on the device.
Invariant: row b of the batch is that of the b-th request of `step.sampling`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from labllm.serving.request import Request
from labllm.serving.sampling import Sampler, SamplingBatch, SamplingRow
from labllm.serving.scheduler import Chunk, ScheduledStep


class Wanted(NamedTuple):
    """What sampling must know of a step.

    rows      one a request that samples, in order; None: those of the step before, each one token further
    admitted  (seat, ids so far) of requests that took a seat and have a repetition penalty
    """

    rows: Sequence[SamplingRow] | None
    admitted: Sequence[tuple[int, Sequence[int]]] = ()


class Rows:
    """The host's side, step after step."""

    def __init__(self) -> None:
        self._requests: list[Request] = []

    def __call__(self, step: ScheduledStep) -> Wanted:
        """What the step's rows want."""
        seated = [request for request in step.seated if request.params.repetition_penalty != 1]
        admitted = [(request.seat, request.ids(0, request.num_known)) for request in seated]
        requests = step.sampling
        if requests and requests == self._requests:
            return Wanted(None, admitted)
        self._requests = requests
        return Wanted([_row(chunk) for chunk in step.chunks if chunk.samples], admitted)


class Batches:
    """The device's side: the batches of `sampler`, step after step; `logprobs` are what each row asked for."""

    def __init__(self, sampler: Sampler) -> None:
        self._sampler = sampler
        self._batch: SamplingBatch | None = None
        self.logprobs: list[int | None] = []

    def of(self, wanted: Wanted) -> SamplingBatch | None:
        """The parameters of the rows that sample, in order; None where none does."""
        for seat, ids in wanted.admitted:
            self._sampler.admit(seat, ids)
        if wanted.rows is None:
            self._batch = self._batch.next()
        else:
            self._batch = SamplingBatch.of(wanted.rows, self._sampler.device) if wanted.rows else None
            self.logprobs = [row.params.logprobs for row in wanted.rows]
        return self._batch


def _row(chunk: Chunk) -> SamplingRow:
    request = chunk.request
    position = chunk.num_computed + chunk.num_new - request.num_prompt
    return SamplingRow(request.params, request.seed, position, request.seat)
