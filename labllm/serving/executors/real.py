"""RealExecutor: runs a step with a model, on a CPU or a GPU.

    prepare (host arrays) -> ids, step -> model -> logits [B, V] -> sample -> ids [S], still on the device

On a GPU everything is queued and nothing is waited for: sampled ids are kept by seat, the next step reads them there,
and a copy travels to pinned memory behind an event, which `wait` waits for one step later. Steps of decodes replay a
CUDA graph of their bucket (`labllm.models.graphs`); steps that read prompts are launched.

Cost on the host: a few array operations a step and a few microseconds a request. Invariant: no wait in `run`. Steps
follow one another on one stream, so a block that was freed while a step in flight still writes to it is safe.
"""

from __future__ import annotations

import torch
from torch import Tensor

from labllm.attention.paged_attend import PagedAttention
from labllm.cache.paged import PagedCache
from labllm.models.by_inputs import store_by_inputs
from labllm.models.graphs import DecodeGraphs
from labllm.models.llama import Llama
from labllm.serving.config import EngineConfig
from labllm.serving.executors.real_inputs import UNKNOWN, Inputs, Preparer
from labllm.serving.executors.real_pending import Arriving
from labllm.serving.executors.real_rows import Rows
from labllm.serving.sampling import Sampler
from labllm.serving.scheduler import ScheduledStep


class RealExecutor:
    """`model` over a paged cache of num_blocks blocks; `config` as `EngineConfig.for_model` fills it in.

    On a CPU the model's weights are laid out anew, in place, with the same values (`labllm.models.by_inputs`).
    """

    def __init__(self, model: Llama, config: EngineConfig, num_blocks: int) -> None:
        shape, self.device = model.config, model.device
        self.cache = PagedCache(
            shape.num_hidden_layers,
            num_blocks,
            config.block_size,
            shape.num_key_value_heads,
            shape.head_dim,
            model.dtype,
            model.device,
        )
        store_by_inputs(model)
        model = model.with_attend(PagedAttention(self.cache))
        self.model = DecodeGraphs(model, config.max_num_seqs, config.max_model_len)
        self.model.capture()
        self.prepare = Preparer(config)
        self.sampler = Sampler(shape.vocab_size, self.device, config.max_num_seqs)
        self.rows = Rows(self.sampler)
        self.last_ids = torch.zeros(config.max_num_seqs, dtype=torch.int64, device=self.device)
        self.lookahead = int(self.device.type == "cuda")

    @torch.inference_mode()
    def run(self, step: ScheduledStep) -> Arriving:
        """Start a step. Raises what the model raises."""
        inputs, rows = self.prepare(step), self.rows.batch(step)
        logits = self.model.run(self._ids(inputs), inputs.step)
        if rows is None:
            return Arriving(None, ())
        last = inputs.last_seats
        if inputs.sampled is not None:
            logits, last = logits[self._sent(inputs.sampled)], last[inputs.sampled]
        sampled = self.sampler.sample(logits, rows)
        if self.lookahead:
            self.last_ids[self._sent(last)] = sampled.ids
        counts = () if rows.num_logprobs is None else [request.params.logprobs for request in step.sampling]
        return Arriving(sampled, counts)

    def _ids(self, inputs: Inputs) -> Tensor:
        """ids [T] on the device, those filled in that only the device knows."""
        ids = self._sent(inputs.ids)
        if not inputs.unknown:
            return ids
        return torch.where(ids == UNKNOWN, self.last_ids[self._sent(inputs.token_seats)], ids)

    def _sent(self, tensor: Tensor) -> Tensor:
        """On the device, without a wait."""
        return tensor.pin_memory().to(self.device, non_blocking=True) if self.device.type == "cuda" else tensor
