"""Prepare: a scheduled step becomes token ids and a `cache.Step`, in a few array operations whatever the batch.

Block tables lie in one array [max_num_seqs, max_blocks], a row a seat, that is written where a table has grown: once in
block_size steps. All else follows from two integers a chunk, how many tokens are computed and how many are new.

An id that a step in flight still samples is not here: it is UNKNOWN, and the device fills it in from what it sampled
last in that seat. Invariant: nothing in here waits for the device.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from labllm.cache.step import Step
from labllm.serving.config import EngineConfig
from labllm.serving.scheduler import ScheduledStep

UNKNOWN = -1


class Inputs(NamedTuple):
    """One step's inputs, on the host.

    ids          [T] int64, some of them UNKNOWN where `unknown`
    token_seats  [T] int64, the seat of each token; last_seats [B], of each chunk
    sampled      None where every chunk samples, else the numbers of those that do, [S] int64
    """

    ids: Tensor
    unknown: bool
    token_seats: Tensor
    last_seats: Tensor
    sampled: Tensor | None
    step: Step


class Preparer:
    """Keeps the block tables of all seats; `config` as `EngineConfig.for_model` fills it in."""

    def __init__(self, config: EngineConfig) -> None:
        self.block_size = config.block_size
        max_blocks = -(-config.max_model_len // config.block_size)
        self.tables = np.full((config.max_num_seqs, max_blocks), -1, dtype=np.int32)

    def __call__(self, scheduled: ScheduledStep) -> Inputs:
        """The inputs of one step."""
        for request in scheduled.grown:
            blocks = request.table.blocks
            self.tables[request.seat, : len(blocks)] = blocks
        reads = scheduled.reads
        seats = np.array([r.seat for r in scheduled.decodes] + [chunk.request.seat for chunk in reads])
        computed = np.array([*scheduled.contexts, *(chunk.num_computed for chunk in reads)])
        new = np.array([1] * len(scheduled.decodes) + [chunk.num_new for chunk in reads])
        samples = np.array([True] * len(scheduled.decodes) + [chunk.samples for chunk in reads])
        ids = _ids(scheduled)
        return Inputs(
            torch.from_numpy(ids),
            bool((ids == UNKNOWN).any()),
            torch.from_numpy(np.repeat(seats, new)),
            torch.from_numpy(seats),
            None if samples.all() else torch.from_numpy(samples.nonzero()[0]),
            self._step(seats, computed, new),
        )

    def _step(self, seats: np.ndarray, computed: np.ndarray, new: np.ndarray) -> Step:
        size, lens = self.block_size, computed + new
        ends = np.cumsum(new)
        longest = int(lens.max())
        owner = np.repeat(np.arange(len(seats)), new)
        positions = np.arange(ends[-1]) + np.repeat(lens - ends, new)
        tables = self.tables[seats, : -(-longest // size)]
        slots = tables[owner, positions // size].astype(np.int64) * size + positions % size
        return Step(
            slot_mapping=torch.from_numpy(slots),
            block_table=torch.from_numpy(tables),
            seq_lens=torch.from_numpy(lens.astype(np.int32)),
            cu_seqlens=torch.from_numpy(np.concatenate(([0], ends)).astype(np.int32)),
            last=torch.from_numpy(ends - 1),
            max_query_len=int(new.max()),
            max_seq_len=longest,
            host_lengths=tuple(zip(new.tolist(), lens.tolist(), strict=True)),
        )


def _ids(scheduled: ScheduledStep) -> np.ndarray:
    """Ids of all tokens, [T] int64. Only a decode can wait for one: whoever reads was not scheduled a step before."""
    ids: list[int] = []
    for request, context in zip(scheduled.decodes, scheduled.contexts, strict=True):
        ids += request.ids(context, context + 1) or [UNKNOWN]
    for request, computed, new, _ in scheduled.reads:
        ids += request.ids(computed, computed + new)
    return np.array(ids, dtype=np.int64)
