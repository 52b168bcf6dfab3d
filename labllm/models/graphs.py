"""Decode in CUDA graphs: the launches of one decode step recorded once a batch size, then started as one.

A decode step of an 8 B model is some 300 launches; where the host takes longer to launch than the device to run, the
device waits. A graph is replayed by one call; `buckets` says where it finds its inputs.

Cost: as `Buckets`. Invariant: the logits of a replay are those of `model(ids, step)`. It loses on prompts, whose shapes
never repeat: they run eagerly, as everything does on a CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from labllm.attention.attend import CacheAttend
from labllm.cache.step import Step
from labllm.models.buckets import Buckets, Rows, default_buckets
from labllm.models.llama import Llama


class HostDecodes(NamedTuple):
    """A step of decodes as `Buckets` takes it; no sequence keeps anything in a seat."""

    ids: np.ndarray
    slots: np.ndarray
    seats: np.ndarray
    lens: np.ndarray
    tables: np.ndarray

    @classmethod
    def of(cls, ids: Tensor, step: Step) -> HostDecodes:
        """ids [B] and a step of B decodes; what is on a device is waited for."""
        step = step.to("cpu")
        tensors = ids.cpu(), step.slot_mapping, torch.arange(len(ids)), step.seq_lens, step.block_table
        return cls(*(tensor.numpy() for tensor in tensors))


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
        sizes = tuple(sorted(set(buckets or default_buckets(max_num_seqs))))
        if sizes[-1] != max_num_seqs:
            raise ValueError(f"Buckets must end at {max_num_seqs}; got {list(sizes)}.")
        self.model, self.max_num_seqs, self.max_seq_len = model, max_num_seqs, max_seq_len
        width = -(-max_seq_len // model.attend.cache.block_size)
        self.buckets: Buckets[Tensor] = Buckets(self._call, sizes, width, model.device)

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

        The step's tensors should be on the host, whence they are copied without a wait; ids may be on the device, and
        then stay there. A bucket's graph is recorded when it is first needed.
        """
        if not self.takes(step):
            return self.model(ids.to(self.model.device), step.to(self.model.device))
        bucket = self.buckets.of(step.num_seqs)
        here = torch.zeros_like(ids, device="cpu") if ids.is_cuda else ids
        bucket.sender.send(HostDecodes.of(here, step), self.buckets.empty_seat)
        if ids.is_cuda:
            bucket.rows.ids[: len(ids)].copy_(ids)
        return bucket.call()[: step.num_seqs]

    def capture(self) -> None:
        """Record every bucket now, the largest first; does nothing on a CPU."""
        if self.model.device.type == "cuda":
            self.buckets.record()

    def clear(self) -> None:
        """Drop the graphs and their memory; the next run records anew."""
        self.buckets.clear()

    def _call(self, rows: Rows) -> Callable[[], Tensor]:
        return lambda: self.model(rows.ids, rows.step(self.max_seq_len))
