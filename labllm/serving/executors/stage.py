"""StageRunner: a runner whose model is one stage of a pipeline.

    first stage   ids, some of them only on the last stage -> hidden state ->
    others                                                    hidden state -> hidden state, or ids on the last one
    and back to the first: the sampled ids, by seat

A step is cut into groups of neighbouring sequences, so that stages work on different ones at the same time. With
lookahead the next step is queued before this one has left the pipeline, and its first group waits for nothing but its
own ids: stages stay busy from step to step, and neither engine nor scheduler knows of it.

Every rank of a stage does the same, in the same order; each talks to its counterpart of the stages beside it. On a GPU
all of it is queued, messages too. Invariant: the ids are those of one device that holds all layers. It loses where
there are fewer sequences than stages: a step passes them one by one.
"""

from __future__ import annotations

from collections import deque
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from labllm.models.llama import Llama
from labllm.parallel.ring import Ring, Waits
from labllm.serving.config import EngineConfig
from labllm.serving.executors.real_graphs import Decoded, DecodeSteps
from labllm.serving.executors.real_inputs import UNKNOWN, Inputs
from labllm.serving.executors.runner import Runner
from labllm.serving.sampling import Logprobs, Sampled, SamplingBatch

PROMPT_GROUPS = 2  # groups a stage where prompts are read: more fill the pipeline better, and each is long enough


class StageRunner(Runner):
    """`Runner` with a stage of the model and its place in the `ring`; further arguments as there."""

    def __init__(
        self, model: Llama, config: EngineConfig, num_blocks: int, ring: Ring, lookahead: int | None = None
    ) -> None:
        self._ring = ring
        hidden = config.max_num_seqs, model.config.hidden_size
        self._landing = torch.zeros(hidden, dtype=model.dtype, device=model.device)
        self._expected: deque[np.ndarray] = deque()  # on the first stage: whose ids are to come, a message each
        self._told: deque[tuple[Waits, Tensor]] = deque()  # on the last one: those messages
        self._leaving: tuple[Waits, Tensor] | None = None  # a hidden state on its way to the next stage
        super().__init__(model, config, num_blocks, lookahead)

    def settle(self) -> None:
        """Exchange all ids that are still to come: the next step may never be, and a send waits for its receive."""
        self._exchange(len(self._expected), len(self._told))

    def _decode_steps(self, config: EngineConfig) -> DecodeSteps:
        return DecodeSteps(self.model, config, self.last_ids, None if self.model.first else self._landing)

    def _computed(self, inputs: Inputs, batch: SamplingBatch | None) -> Sampled | None:
        """The ids of those that sample, on the last stage; None on the others."""
        groups = cut(inputs, self._ring.stages * (1 if inputs.decodes else PROMPT_GROUPS))
        expected, told, row, sampled = len(self._expected), len(self._told), 0, []
        for start, end in groups:
            part = inputs.part(start, end)
            count = int(part.samples.sum())
            expected -= self._learn_for(part)
            decoded = self._decoded(part)
            if not self.model.last:
                self._leaving = self._sent_on(decoded.logits)
            elif count:
                one = self._sampled(decoded, part, batch.part(row, row + count))
                sampled.append(one._replace(ids=one.ids.clone()))  # the next replay writes there
                if self.lookahead:
                    self._told.append(self._sent_on(sampled[-1].ids))
            if self.model.first and self.lookahead and count:
                self._expected.append(part.seats[part.samples])
            row += count
        self._exchange(expected, told)
        return _joined(sampled) if sampled else None

    def _decoded(self, inputs: Inputs) -> Decoded:
        """h, or logits on the last stage."""
        if self._leaving is not None:  # from a graph's memory, where the next replay writes
            self._leaving[0].wait()
        if self.decode_steps is not None and inputs.decodes:
            if not self.model.first:
                self._ring.before.receive(self._landing[: len(inputs.ids)])
            return self.decode_steps.run(inputs)
        step = inputs.step().to(self.device)
        if self.model.first:
            return Decoded(self.model(self._ids(inputs), step), None)
        h = torch.empty(len(inputs.ids), self.model.config.hidden_size, dtype=self.model.dtype, device=self.device)
        return Decoded(self.model(self._ring.before.receive(h), step), None)

    def _sent_on(self, x: Tensor) -> tuple[Waits, Tensor]:
        """x on its way to the stage behind this one, the first behind the last."""
        x = x.contiguous()
        return self._ring.after.send(x), x

    def _exchange(self, expected: int, told: int) -> None:
        """Ids of steps before this one: the first stage takes in `expected` messages, the last sees `told` arrive."""
        for _ in range(expected):
            self._learn()
        for _ in range(told):
            self._told.popleft()[0].wait()

    def _learn_for(self, part: Inputs) -> int:
        """Receive until all ids that `part` needs are here; returns how many messages came."""
        came, needed = 0, part.seats[np.nonzero(part.ids == UNKNOWN)[0]]  # decodes stand first, one token each
        while any(np.isin(needed, seats).any() for seats in self._expected):
            self._learn()
            came += 1
        return came

    def _learn(self) -> None:
        """The next message of ids, into the seats of their requests."""
        seats = self._expected.popleft()
        ids = self._ring.before.receive(torch.empty(len(seats), dtype=torch.int64, device=self.device))
        self.last_ids[self._sent(seats)] = ids


def cut(inputs: Inputs, count: int) -> list[tuple[int, int]]:
    """(first, behind the last) chunk of at most `count` groups of neighbours, with about as many tokens each."""
    ends = np.cumsum(inputs.new)
    bounds = np.searchsorted(ends, np.arange(1, count) * (ends[-1] / count)) + 1
    edges = sorted({0, *(int(bound) for bound in bounds if bound < len(ends)), len(ends)})
    return list(pairwise(edges))


def _joined(parts: list[Sampled]) -> Sampled:
    if len(parts) == 1:
        return parts[0]
    ids = torch.cat([part.ids for part in parts])
    if parts[0].logprobs is None:
        return Sampled(ids)
    return Sampled(ids, Logprobs(*map(torch.cat, zip(*(part.logprobs for part in parts), strict=True))))
