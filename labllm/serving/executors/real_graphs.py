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
    """logits [B, V] and the likeliest ids [B] int64, on the device until the next step writes over them.

    Of a stage that is not the last of a pipeline: the hidden state [B, H], and None.
    """

    logits: Tensor
    ids: Tensor | None


class DecodeSteps:
    """Steps of decodes of `model`, whose attend keeps a paged cache.

    last_ids [max_num_seqs + 1] int64 holds what was sampled last in each seat, and one for padding. Where the model is
    a later stage of a pipeline, its input is found in the first rows of `landing` [max_num_seqs, H] instead of ids.
    """

    @torch.inference_mode()
    def __init__(self, model: Llama, config: EngineConfig, last_ids: Tensor, landing: Tensor | None = None) -> None:
        self.model, self.last_ids, self.landing = model, last_ids, landing
        self.max_model_len = config.max_model_len
        width, sizes = -(-config.max_model_len // config.block_size), default_buckets(config.max_num_seqs)
        self.buckets: Buckets[Decoded] = Buckets(self._call, sizes, width, model.device)
        self.buckets.record()

    def run(self, inputs: Inputs) -> Decoded:
        """Start one step; `last_ids` then has the likeliest ids."""
        decoded, rows = self.buckets.run(inputs), len(inputs.seats)
        return Decoded(decoded.logits[:rows], None if decoded.ids is None else decoded.ids[:rows])

    def _call(self, rows: Rows) -> Callable[[], Decoded]:
        def call() -> Decoded:
            out = self.model(self._input(rows), rows.step(self.max_model_len))
            if not self.model.last:
                return Decoded(out, None)
            likeliest = out.argmax(dim=-1)
            self.last_ids[rows.seats] = likeliest
            return Decoded(out, likeliest)

        return call

    def _input(self, rows: Rows) -> Tensor:
        if self.landing is not None:
            return self.landing[: len(rows.ids)]
        return torch.where(rows.ids == UNKNOWN, self.last_ids[rows.seats], rows.ids)
