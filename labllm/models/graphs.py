"""Decode in CUDA graphs: the launches of one decode step recorded once a batch size, then started as one.

A decode step of an 8 B model is some 300 launches; where the host takes longer to launch than the device to run, the
device waits. A graph is replayed by one call and knows only the addresses of its inputs, so every step's inputs are
copied to the same buffers, and a batch between two recorded sizes (buckets) is padded: seq_len 0 and slot -1 read
nothing, write nothing and give rows that nobody looks at.

Cost: memory of one step's intermediates, which all buckets share, and a capture a bucket. Invariant: the logits of a
replay are those of `model(ids, step)`. It loses on prompts, whose shapes never repeat: they run eagerly, as everything
does on a CPU. NVIDIA, CUDA C++ Programming Guide, 'CUDA Graphs'.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

import torch
from torch import Tensor

from labllm.attention.attend import CacheAttend
from labllm.cache.step import Step
from labllm.models.llama import Llama
from labllm.models.replay import Replay, captured

COARSE = 64  # from here on a bucket has this many rows more than the last one


def default_buckets(max_num_seqs: int) -> tuple[int, ...]:
    """1, 2, 4 ... 64, 128, 192 ... and max_num_seqs itself: at most twice the rows, and at most 63 more."""
    sizes = {1 << i for i in range(COARSE.bit_length())} | set(range(COARSE, max_num_seqs, COARSE))
    return tuple(sorted({size for size in sizes if size < max_num_seqs} | {max_num_seqs}))


class StaticStep:
    """The buffers in which a graph finds its ids and its step: `max_num_seqs` rows, padding where nothing was put."""

    def __init__(self, max_num_seqs: int, max_seq_len: int, block_size: int, device: torch.device) -> None:
        self.max_seq_len, self._used = max_seq_len, 0
        width = -(-max_seq_len // block_size)
        self.ids = torch.zeros(max_num_seqs, dtype=torch.int64, device=device)
        self._slots = torch.full((max_num_seqs,), -1, dtype=torch.int64, device=device)
        self._seq_lens = torch.zeros(max_num_seqs, dtype=torch.int32, device=device)
        self._table = torch.zeros(max_num_seqs, width, dtype=torch.int32, device=device)
        self._starts = torch.arange(max_num_seqs + 1, dtype=torch.int32, device=device)
        self._last = torch.arange(max_num_seqs, device=device)

    def put(self, ids: Tensor, step: Step) -> None:
        """Copy ids [B] and a step of B decodes into the first rows; rows that an earlier step used become padding.

        Nothing waits for the device: tensors on the host go through pinned memory.
        """
        rows, width = len(ids), step.block_table.shape[1]
        step = step.to(self.ids.device)
        self.ids[:rows].copy_(ids, non_blocking=True)
        self._slots[:rows].copy_(step.slot_mapping)
        self._seq_lens[:rows].copy_(step.seq_lens)
        self._table[:rows, :width].copy_(step.block_table)
        if rows < self._used:
            self._slots[rows : self._used].fill_(-1)
            self._seq_lens[rows : self._used].fill_(0)
        self._used = rows

    def step(self, rows: int) -> Step:
        """A step over the first `rows` rows, as views of the buffers."""
        return Step(
            slot_mapping=self._slots[:rows],
            block_table=self._table[:rows],
            seq_lens=self._seq_lens[:rows],
            cu_seqlens=self._starts[: rows + 1],
            last=self._last[:rows],
            max_query_len=1,
            max_seq_len=self.max_seq_len,
        )


class DecodeGraphs:
    """Runs steps of `model`, those of at most max_num_seqs decodes by a graph: send every step through `run`.

    The model's `attend` must keep a paged cache that kernels read (`PagedAttention`); max_seq_len bounds prompt and
    answer together. Raises ValueError for a model without a cache, for sizes that are not positive or more than the
    model's positions, and for buckets that do not reach max_num_seqs.
    """

    def __init__(self, model: Llama, max_num_seqs: int, max_seq_len: int, buckets: Sequence[int] | None = None) -> None:
        if not isinstance(model.attend, CacheAttend):
            raise ValueError("Decode graphs need a model whose attend keeps a cache, PagedAttention(cache) say.")
        positions = model.config.max_position_embeddings
        if max_num_seqs < 1 or not 1 <= max_seq_len <= positions:
            raise ValueError(
                f"Decode graphs need max_num_seqs >= 1 and max_seq_len in 1 .. {positions}, the model's positions; "
                f"got {max_num_seqs} and {max_seq_len}."
            )
        self.buckets = tuple(sorted(set(buckets or default_buckets(max_num_seqs))))
        if self.buckets[0] < 1 or self.buckets[-1] != max_num_seqs:
            raise ValueError(f"Buckets must be positive and end at {max_num_seqs}; got {list(self.buckets)}.")
        self.model, self.max_num_seqs, self.max_seq_len = model, max_num_seqs, max_seq_len
        self._inputs = StaticStep(max_num_seqs, max_seq_len, model.attend.cache.block_size, model.device)
        self._graphs: dict[int, Replay[Tensor]] = {}
        self._pool: tuple[int, int] | None = None

    def takes(self, step: Step) -> bool:
        """Whether `run` replays a graph for this step; raises ValueError for decodes too many or too long for one."""
        if not step.decodes or self.model.device.type != "cuda":
            return False
        if step.num_seqs > self.max_num_seqs or step.max_seq_len > self.max_seq_len:
            raise ValueError(
                f"The graphs hold {self.max_num_seqs} sequences of {self.max_seq_len} tokens; "
                f"the step has {step.num_seqs} of up to {step.max_seq_len}."
            )
        return True

    @torch.inference_mode()
    def run(self, ids: Tensor, step: Step) -> Tensor:
        """One step: ids [T] int64 -> logits [B, V] on the model's device, valid until the next run in stream order.

        The step's tensors may be on the host, whence they are copied without a wait; so may the ids. A bucket's graph
        is captured when it is first needed.
        """
        if not self.takes(step):
            return self.model(ids.to(self.model.device), step.to(self.model.device))
        self._inputs.put(ids, step)
        replay = self._graph(self.buckets[bisect_left(self.buckets, step.num_seqs)])
        return replay()[: step.num_seqs]

    @torch.inference_mode()
    def capture(self) -> None:
        """Capture every bucket now, the largest first, so that the others find its memory; does nothing on a CPU."""
        if self.model.device.type == "cuda":
            for rows in reversed(self.buckets):
                self._graph(rows)

    def clear(self) -> None:
        """Drop the graphs and their memory; the next run captures anew."""
        self._graphs.clear()
        self._pool = None

    def _graph(self, rows: int) -> Replay[Tensor]:
        """Replays a bucket and returns its logits [rows, V].

        Warm-up and capture may meet real rows in the buffers: what they store is what the replay stores.
        """
        if rows not in self._graphs:
            self._pool = self._pool or torch.cuda.graph_pool_handle()
            self._graphs[rows] = captured(lambda: self._step(rows), self._pool)
        return self._graphs[rows]

    def _step(self, rows: int) -> Tensor:
        return self.model(self._inputs.ids[:rows], self._inputs.step(rows))
