"""Steps of decodes as CUDA graphs from id to id: one copy to the device, one replay, one copy back.

What surrounds the model is in the graph as well: ids that only the device knows are looked up by seat, the likeliest
next ids are found and kept by seat for the step after. Left outside, each of these small operations would let the
device wait for a launch, longer than it runs. `labllm.models.buckets` keeps a graph a batch size.

Cost: the captures, all at the start. Invariant: logits and ids are those of the same step launched one by one. On a CPU
the same steps run without graphs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from labllm.models.buckets import Buckets, Rows, default_buckets
from labllm.models.llama import Llama
from labllm.serving.config import EngineConfig
from labllm.serving.executors.real_inputs import UNKNOWN, Inputs


class Decoded(NamedTuple):
    """logits [B, V] and the likeliest ids [B] int64, on the device until the next step writes over them."""

    logits: Tensor
    ids: Tensor


class DecodeSteps:
    """Steps of decodes of `model`, whose attend keeps a paged cache.

    last_ids [max_num_seqs + 1] int64 holds what was sampled last in each seat, and one for padding.
    """

    @torch.inference_mode()
    def __init__(self, model: Llama, config: EngineConfig, last_ids: Tensor) -> None:
        self.model, self.last_ids, self.max_model_len = model, last_ids, config.max_model_len
        width = -(-config.max_model_len // config.block_size)
        sizes = default_buckets(config.max_num_seqs)
        self.buckets: Buckets[Decoded] = Buckets(self._call, sizes, width, model.device)
        self.buckets.record()

    def run(self, inputs: Inputs) -> Decoded:
        """Start one step; `last_ids` then has the likeliest ids."""
        decoded, rows = self.buckets.run(inputs), len(inputs.seats)
        return Decoded(decoded.logits[:rows], decoded.ids[:rows])

    def _call(self, rows: Rows) -> Callable[[], Decoded]:
        step = rows.step(self.max_model_len)

        def call() -> Decoded:
            ids = torch.where(rows.ids == UNKNOWN, self.last_ids[rows.seats], rows.ids)
            logits = self.model(ids, step)
            likeliest = logits.argmax(dim=-1)
            self.last_ids[rows.seats] = likeliest
            return Decoded(logits, likeliest)

        return call
