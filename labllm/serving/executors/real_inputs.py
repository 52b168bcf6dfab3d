"""Prepare: a scheduled step becomes arrays on the host, in a few operations whatever the batch.

Block tables lie in one array [max_num_seqs, max_blocks], a row a seat, that is written where a table has grown: once in
block_size steps. All else follows from two integers a chunk, how many tokens are computed and how many are new.

An id that a step in flight still samples is not here: it is UNKNOWN, and the device fills it in from what it sampled
last in that seat. Invariant: nothing in here knows a device.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

from labllm.cache.step import Step
from labllm.serving.config import EngineConfig
from labllm.serving.scheduler import ScheduledStep

UNKNOWN = -1


class Inputs(NamedTuple):
    """A step of T tokens in B chunks, decodes first.

    ids, slots [T] int64       token ids, some of them UNKNOWN, and where keys and values go
    seats, new, lens [B] int64 seat, tokens of this step, tokens with them
    tables [B, max_blocks] int32   blocks, as many columns as the longest needs
    samples [B] bool           chunks whose next token is asked for
    """

    ids: np.ndarray
    slots: np.ndarray
    seats: np.ndarray
    new: np.ndarray
    lens: np.ndarray
    tables: np.ndarray
    samples: np.ndarray

    @property
    def decodes(self) -> bool:
        """Whether every chunk is one token."""
        return len(self.ids) == len(self.seats)

    def part(self, start: int, end: int) -> Inputs:
        """The chunks start .. end - 1 alone."""
        first, last = int(self.new[:start].sum()), int(self.new[:end].sum())
        tokens, rows = slice(first, last), slice(start, end)
        return Inputs(self.ids[tokens], self.slots[tokens], *(array[rows] for array in self[2:]))

    def step(self) -> Step:
        """The same as a `cache.Step`, on the host."""
        ends = np.cumsum(self.new)
        return Step(
            slot_mapping=torch.from_numpy(self.slots),
            block_table=torch.from_numpy(self.tables),
            seq_lens=torch.from_numpy(self.lens.astype(np.int32)),
            cu_seqlens=torch.from_numpy(np.concatenate(([0], ends)).astype(np.int32)),
            last=torch.from_numpy(ends - 1),
            max_query_len=int(self.new.max()),
            max_seq_len=int(self.lens.max()),
            host_lengths=tuple(zip(self.new.tolist(), self.lens.tolist(), strict=True)),
        )


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
        decodes, reads, size = scheduled.decodes, scheduled.reads, self.block_size
        ones = [1] * len(decodes)
        seats = np.array([request.seat for request in decodes] + [chunk.request.seat for chunk in reads])
        computed = np.array([*scheduled.contexts, *(chunk.num_computed for chunk in reads)])
        new = np.array(ones + [chunk.num_new for chunk in reads])
        lens = computed + new
        owner = np.repeat(np.arange(len(seats)), new)
        positions = np.arange(len(owner)) + np.repeat(lens - np.cumsum(new), new)
        tables = self.tables[seats, : -(-int(lens.max()) // size)]
        slots = tables[owner, positions // size].astype(np.int64) * size + positions % size
        samples = np.array(ones + [chunk.samples for chunk in reads], dtype=bool)
        return Inputs(_ids(scheduled), slots, seats, new, lens, tables, samples)


def _ids(scheduled: ScheduledStep) -> np.ndarray:
    """Ids of all tokens, [T] int64. Only a decode can wait for one: whoever reads was not scheduled a step before."""
    ids: list[int] = []
    for request, context in zip(scheduled.decodes, scheduled.contexts, strict=True):
        ids += request.ids(context, context + 1) or [UNKNOWN]
    for request, computed, new, _ in scheduled.reads:
        ids += request.ids(computed, computed + new)
    return np.array(ids, dtype=np.int64)
