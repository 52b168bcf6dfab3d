"""RealExecutor: runs a step with a model, on a CPU or a GPU.

    prepare (host arrays) -> ids, step -> model -> logits [B, V] -> sample -> ids [S], still on the device

On a GPU everything is queued and nothing is waited for: sampled ids are kept by seat, the next step reads them there,
and a copy travels to pinned memory behind an event, which `wait` waits for one step later. Steps of decodes replay a
CUDA graph (`real_graphs`); steps that read prompts are launched, since their shapes never repeat and they are long.

Cost on the host: a few array operations a step and a few microseconds a request. Invariant: no wait in `run`. Steps
follow one another on one stream, so a block that was freed while a step in flight still writes to it is safe.
"""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import torch
from torch import Tensor

from labllm.attention.paged_attend import PagedAttention
from labllm.cache.paged import PagedCache
from labllm.models.by_inputs import store_by_inputs
from labllm.models.llama import Llama
from labllm.serving.config import EngineConfig
from labllm.serving.executors.real_graphs import Decoded, DecodeSteps
from labllm.serving.executors.real_inputs import UNKNOWN, Inputs, Preparer
from labllm.serving.executors.real_pending import Arriving, GpuClock
from labllm.serving.executors.real_rows import Rows
from labllm.serving.executors.real_threads import threads_of
from labllm.serving.sampling import Sampled, Sampler, SamplingBatch
from labllm.serving.scheduler import ScheduledStep


class RealExecutor:
    """`model` over a paged cache of num_blocks blocks; `config` as `EngineConfig.for_model` fills it in.

    On a CPU the model's weights are laid out anew, in place, with the same values (`labllm.models.by_inputs`), and a
    small model computes with one thread (`real_threads`).
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
        self.threads = threads_of(model) if model.device.type == "cpu" else None
        self.model = model.with_attend(PagedAttention(self.cache))
        self.prepare = Preparer(config)
        self.sampler = Sampler(shape.vocab_size, self.device, config.max_num_seqs)
        self.rows = Rows(self.sampler)
        self.last_ids = torch.zeros(config.max_num_seqs + 1, dtype=torch.int64, device=self.device)
        cuda = self.device.type == "cuda"
        self.lookahead = int(cuda)
        self.clock = GpuClock() if cuda else None
        self.decode_steps = DecodeSteps(self.model, config, self.last_ids) if cuda else None

    @torch.inference_mode()
    def run(self, step: ScheduledStep) -> Arriving:
        """Start a step. Raises what the model raises."""
        inputs, rows = self.prepare(step), self.rows.batch(step)
        start = None if self.clock is None else self.clock.mark()
        with self.threads.step(len(inputs.ids)) if self.threads else nullcontext():
            sampled = self._sampled(inputs, rows)
        wanted = sampled is not None and sampled.logprobs is not None
        counts = [request.params.logprobs for request in step.sampling] if wanted else ()
        return Arriving(sampled, counts, self.clock, start)

    def _sampled(self, inputs: Inputs, rows: SamplingBatch | None) -> Sampled | None:
        """The next ids of those that sample, on the device; None where nobody does."""
        graphed = self.decode_steps is not None and inputs.decodes
        logits, likeliest = self.decode_steps.run(inputs) if graphed else Decoded(self._launch(inputs), None)
        if rows is None:
            return None
        chosen = slice(rows.size)  # those that sample stand first among decodes
        if not inputs.samples[chosen].all():
            chosen = self._sent(inputs.samples.nonzero()[0])
        if graphed and rows.greedy:
            return Sampled(likeliest[chosen])
        sampled = self.sampler.sample(logits[chosen], rows)
        if self.lookahead:
            self.last_ids[self._sent(inputs.seats[inputs.samples])] = sampled.ids
        return sampled

    def _launch(self, inputs: Inputs) -> Tensor:
        """logits [B, V], the model's operations launched one by one."""
        ids = self._sent(inputs.ids)
        if (inputs.ids == UNKNOWN).any():
            seats = self._sent(np.repeat(inputs.seats, inputs.new))
            ids = torch.where(ids == UNKNOWN, self.last_ids[seats], ids)
        return self.model(ids, inputs.step().to(self.device))

    def _sent(self, array: np.ndarray) -> Tensor:
        """On the device, without a wait."""
        tensor = torch.from_numpy(array)
        return tensor.pin_memory().to(self.device, non_blocking=True) if self.device.type == "cuda" else tensor
