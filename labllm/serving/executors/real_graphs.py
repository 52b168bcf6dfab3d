"""Steps of decodes as CUDA graphs from id to id: one copy to the device, one replay, one copy back.

What surrounds the model is in the graph as well: ids that only the device knows are looked up by seat, the likeliest
next ids are found and kept by seat for the step after. Left outside, each of these small operations would let the
device wait for a launch, longer than it runs. All inputs of a step travel in one piece of pinned memory, laid out as
the graph reads them; the host writes two such pieces in turns, since the copy of the last one may still be under way.

A batch between two recorded sizes (buckets) is padded: seq_len 0, slot -1, and a seat of its own that nobody reads.
Cost: a capture a bucket, all at the start. Invariant: logits and ids are those of the same step launched one by one.
It loses nothing but the wait for the captures. On a CPU the same steps run without graphs.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from itertools import cycle
from typing import NamedTuple

import torch
from torch import Tensor

from labllm.cache.step import Step
from labllm.models.graphs import default_buckets
from labllm.models.llama import Llama
from labllm.models.replay import captured
from labllm.serving.config import EngineConfig
from labllm.serving.executors.real_inputs import UNKNOWN, Inputs


class Fields(NamedTuple):
    """Views of one piece of memory: ids, slots, seats [R] int64, seq_lens [R] int32, tables [R, width] int32."""

    whole: Tensor
    ids: Tensor
    slots: Tensor
    seats: Tensor
    seq_lens: Tensor
    tables: Tensor

    @classmethod
    def on(cls, device: torch.device, rows: int, width: int, pinned: bool = False) -> Fields:
        """Memory for `rows` rows, filled with zeros."""
        size = 3 * rows + -(-rows * (1 + width) // 2)
        whole = torch.zeros(size, dtype=torch.int64, device=device, pin_memory=pinned)
        ids, slots, seats = whole[: 3 * rows].split(rows)
        narrow = whole[3 * rows :].view(torch.int32)
        return cls(whole, ids, slots, seats, narrow[:rows], narrow[rows : rows * (1 + width)].view(rows, width))

    def put(self, inputs: Inputs, empty_seat: int) -> None:
        """Write the inputs into the first rows of this memory, which is on the host, and padding into the others."""
        used, width = len(inputs.seats), inputs.tables.shape[1]
        rows = {"ids": (inputs.ids, 0), "slots": (inputs.slots, -1), "seats": (inputs.seats, empty_seat)}
        for name, (values, padding) in (rows | {"seq_lens": (inputs.lens, 0)}).items():
            array = getattr(self, name).numpy()
            array[:used], array[used:] = values, padding
        self.tables.numpy()[:used, :width] = inputs.tables


class Decoded(NamedTuple):
    """logits [B, V] and the likeliest ids [B] int64, on the device until the next step writes over them."""

    logits: Tensor
    ids: Tensor


class Bucket:
    """Steps of up to `rows` decodes: memory on both sides and the call that reads it."""

    def __init__(self, rows: int, width: int, device: torch.device) -> None:
        cuda = device.type == "cuda"
        self.device = Fields.on(device, rows, width)
        self._hosts = cycle([Fields.on(torch.device("cpu"), rows, width, pinned=cuda) for _ in range(2)])
        self.call: Callable[[], Decoded] | None = None

    def send(self, inputs: Inputs, empty_seat: int) -> None:
        """Put a step where the call reads it, without a wait."""
        host = next(self._hosts)
        host.put(inputs, empty_seat)
        self.device.whole.copy_(host.whole, non_blocking=True)


class DecodeSteps:
    """Steps of decodes of `model`, whose attend keeps a paged cache.

    last_ids [max_num_seqs + 1] int64 holds what was sampled last in each seat, and one for padding.
    """

    @torch.inference_mode()
    def __init__(self, model: Llama, config: EngineConfig, last_ids: Tensor) -> None:
        self.model, self.last_ids, self.max_model_len = model, last_ids, config.max_model_len
        self.empty_seat = len(last_ids) - 1
        self.sizes = default_buckets(config.max_num_seqs)
        width = -(-config.max_model_len // config.block_size)
        self.buckets = {rows: Bucket(rows, width, model.device) for rows in self.sizes}
        cuda = model.device.type == "cuda"
        pool = torch.cuda.graph_pool_handle() if cuda else None
        for rows in reversed(self.sizes):  # the largest first, so that the others find its memory
            self._pad(self.buckets[rows])
            call = self._call(rows)
            self.buckets[rows].call = captured(call, pool) if cuda else call

    def run(self, inputs: Inputs) -> Decoded:
        """Start one step; `last_ids` then has the likeliest ids."""
        rows = len(inputs.seats)
        bucket = self.buckets[self.sizes[bisect_left(self.sizes, rows)]]
        bucket.send(inputs, self.empty_seat)
        decoded = bucket.call()
        return Decoded(decoded.logits[:rows], decoded.ids[:rows])

    def _pad(self, bucket: Bucket) -> None:
        """Nothing but padding, for the runs around a capture: they must write to no block."""
        bucket.device.slots.fill_(-1)
        bucket.device.seats.fill_(self.empty_seat)

    def _call(self, rows: int) -> Callable[[], Decoded]:
        fields, device = self.buckets[rows].device, self.model.device
        starts = torch.arange(rows + 1, dtype=torch.int32, device=device)
        last = torch.arange(rows, device=device)

        def call() -> Decoded:
            step = Step(fields.slots, fields.tables, fields.seq_lens, starts, last, 1, self.max_model_len)
            ids = torch.where(fields.ids == UNKNOWN, self.last_ids[fields.seats], fields.ids)
            logits = self.model(ids, step)
            likeliest = logits.argmax(dim=-1)
            self.last_ids[fields.seats] = likeliest
            return Decoded(logits, likeliest)

        return call
