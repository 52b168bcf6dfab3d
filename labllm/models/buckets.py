"""Steps of decodes by batch size: memory where a recorded call finds its inputs, and one recorded call a size.

A CUDA graph knows only the addresses of what it reads. So all integers of a step travel in one piece of pinned memory,
laid out as the call reads them, to where the call was recorded to look: one copy, one replay. A batch between two sizes
(buckets) is padded: seq_len 0, slot -1, and a seat of its own that nobody reads. What the call computes is its owner's
business: a model's logits, a step from id to id, a stage of a pipeline.

Cost: memory of one step's intermediates, which all buckets share, and a capture a bucket. Invariant: a bucket's call
reads nothing but its own memory and what its owner keeps; the host writes to a piece again when its copy has left. On a
CPU the same calls run without graphs. NVIDIA, CUDA C++ Programming Guide, 'CUDA Graphs'.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import cycle
from typing import Generic, NamedTuple, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor

from labllm.cache.step import Step
from labllm.models.replay import captured

Result = TypeVar("Result")
COARSE = 64  # from here on a bucket has this many rows more than the last one


def default_buckets(max_num_seqs: int) -> tuple[int, ...]:
    """1, 2, 4 ... 64, 128, 192 ... and max_num_seqs itself: at most twice the rows, and at most 63 more."""
    sizes = {1 << i for i in range(COARSE.bit_length())} | set(range(COARSE, max_num_seqs, COARSE))
    return tuple(sorted({size for size in sizes if size < max_num_seqs} | {max_num_seqs}))


class Decodes(Protocol):
    """A step of B decodes on the host: ids, slots, seats, lens [B] integers, and tables [B, max_blocks].

    lens counts this step's token; a seat is a row of the owner's memory that belongs to the sequence.
    """

    ids: np.ndarray
    slots: np.ndarray
    seats: np.ndarray
    lens: np.ndarray
    tables: np.ndarray


class Rows(NamedTuple):
    """Views of one piece of memory: ids, slots, seats [R] int64, seq_lens [R] int32, tables [R, width] int32.

    starts [R + 1] int32 and last [R] int64 count rows and never change.
    """

    whole: Tensor
    ids: Tensor
    slots: Tensor
    seats: Tensor
    seq_lens: Tensor
    tables: Tensor
    starts: Tensor
    last: Tensor

    @classmethod
    def on(cls, device: torch.device | str, rows: int, width: int, pinned: bool = False) -> Rows:
        """Memory for `rows` rows, filled with zeros."""
        size = 3 * rows + -(-rows * (1 + width) // 2)
        whole = torch.zeros(size, dtype=torch.int64, device=device, pin_memory=pinned)
        ids, slots, seats = whole[: 3 * rows].split(rows)
        narrow = whole[3 * rows :].view(torch.int32)
        tables = narrow[rows : rows * (1 + width)].view(rows, width)
        starts, last = torch.arange(rows + 1, dtype=torch.int32, device=device), torch.arange(rows, device=device)
        return cls(whole, ids, slots, seats, narrow[:rows], tables, starts, last)

    def put(self, decodes: Decodes, empty_seat: int) -> None:
        """Write a step into the first rows of this memory, which is on the host, and padding into the others."""
        used, width = len(decodes.seats), decodes.tables.shape[1]
        rows = {"ids": (decodes.ids, 0), "slots": (decodes.slots, -1), "seats": (decodes.seats, empty_seat)}
        for name, (values, padding) in (rows | {"seq_lens": (decodes.lens, 0)}).items():
            array = getattr(self, name).numpy()
            array[:used], array[used:] = values, padding
        self.tables.numpy()[:used, :width] = decodes.tables

    def step(self, max_seq_len: int) -> Step:
        """A step over all rows, as views of this memory; a new one for each call, for a step keeps its positions."""
        return Step(self.slots, self.tables, self.seq_lens, self.starts, self.last, 1, max_seq_len)


class Sender:
    """Carries steps to `rows` without a wait: two pieces of pinned memory, filled in turns."""

    def __init__(self, rows: Rows) -> None:
        cuda, (count, width) = rows.whole.is_cuda, rows.tables.shape
        pieces = [Rows.on("cpu", count, width, pinned=cuda) for _ in range(2)]
        self._rows = rows
        self._turns = cycle([(piece, torch.cuda.Event() if cuda else None) for piece in pieces])

    @torch.inference_mode()
    def send(self, decodes: Decodes, empty_seat: int) -> None:
        """Put a step where the call reads it; waits only for a copy that was started two steps ago."""
        piece, sent = next(self._turns)
        if sent is not None:
            sent.synchronize()
        piece.put(decodes, empty_seat)
        self._rows.whole.copy_(piece.whole, non_blocking=True)
        if sent is not None:
            sent.record()


class Bucket(NamedTuple, Generic[Result]):
    """Steps of up to len(rows.ids) decodes: where they are sent, and the call that reads them there."""

    rows: Rows
    sender: Sender
    call: Callable[[], Result]


class Buckets(Generic[Result]):
    """Calls by batch size; `prepare(rows)` gives the call for a piece of memory, on `device`, to be recorded there.

    sizes ascend, the last one is the most that a step may have, and the seat of padding: owners keep one seat more.
    Raises ValueError for sizes that do not.
    """

    def __init__(
        self,
        prepare: Callable[[Rows], Callable[[], Result]],
        sizes: Sequence[int],
        width: int,
        device: torch.device,
    ) -> None:
        if not sizes or sizes[0] < 1 or list(sizes) != sorted(set(sizes)):
            raise ValueError(f"Buckets must be positive and ascend; got {list(sizes)}.")
        self.sizes, self.empty_seat = tuple(sizes), sizes[-1]
        self._prepare, self._width, self._device = prepare, width, device
        self._buckets: dict[int, Bucket[Result]] = {}
        self._pool: tuple[int, int] | None = None

    def of(self, batch: int) -> Bucket[Result]:
        """The smallest bucket for a batch; recorded when it is first asked for."""
        size = self.sizes[bisect_left(self.sizes, batch)]
        if size not in self._buckets:
            self._buckets[size] = self._recorded(size)
        return self._buckets[size]

    @torch.inference_mode()
    def run(self, decodes: Decodes) -> Result:
        """Start a step -> what its bucket's call gives, all rows of it, until the next run in stream order."""
        bucket = self.of(len(decodes.seats))
        bucket.sender.send(decodes, self.empty_seat)
        return bucket.call()

    def record(self) -> None:
        """Record every bucket now, the largest first, so that the others find its memory."""
        for size in reversed(self.sizes):
            self.of(size)

    def clear(self) -> None:
        """Drop the graphs and their memory; the next run records anew."""
        self._buckets.clear()
        self._pool = None

    @torch.inference_mode()
    def _recorded(self, size: int) -> Bucket[Result]:
        """Runs around a capture meet nothing but padding: they write to no block, and to the seat of nobody."""
        rows = Rows.on(self._device, size, self._width)
        rows.slots.fill_(-1)
        rows.seats.fill_(self.empty_seat)
        call = self._prepare(rows)
        if self._device.type == "cuda":
            self._pool = self._pool or torch.cuda.graph_pool_handle()
            call = captured(call, self._pool)
        return Bucket(rows, Sender(rows), call)
