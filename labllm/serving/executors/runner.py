"""Runner: computes steps with a model, wherever that is, a whole one or a rank's part of it.

On a GPU everything is queued and nothing is waited for: sampled ids are kept by seat, the next step reads them there,
and a copy travels to pinned memory behind an event, which `wait` waits for one step later. Steps of decodes replay a
CUDA graph (`real_graphs`); steps that read prompts are launched, since their shapes never repeat and they are long.

Invariant: no wait in `start`. Steps follow one another on one stream, so a block that was freed while a step in flight
still writes to it is safe.
"""

from __future__ import annotations

import gc
from contextlib import nullcontext
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from labllm.attention.paged_attend import PagedAttention
from labllm.cache.paged import PagedCache
from labllm.models.by_inputs import store_by_inputs
from labllm.models.llama import Llama
from labllm.serving.config import EngineConfig
from labllm.serving.executors.real_graphs import Decoded, DecodeSteps
from labllm.serving.executors.real_inputs import UNKNOWN, Inputs
from labllm.serving.executors.real_pending import Arriving, GpuClock
from labllm.serving.executors.real_rows import Batches, Wanted
from labllm.serving.executors.real_threads import threads_of
from labllm.serving.executors.warm_up import warm_up
from labllm.serving.sampling import Sampled, Sampler, SamplingBatch


class Work(NamedTuple):
    """All that a runner must know of a step."""

    inputs: Inputs
    wanted: Wanted


class Runner:
    """`model` over a paged cache of num_blocks blocks; `config` as `EngineConfig.for_model` fills it in.

    lookahead  steps that may be started before ids are read; default 1 on a GPU. On a CPU a step is done when `start`
               returns, and looking ahead only costs a token
    On a GPU kernels are compiled and decode steps recorded here. On a CPU the model's weights are laid out anew, in
    place, with the same values (`labllm.models.by_inputs`).
    """

    def __init__(self, model: Llama, config: EngineConfig, num_blocks: int, lookahead: int | None = None) -> None:
        shape, self.device = model.config, model.device
        cuda = self.device.type == "cuda"
        self.lookahead = int(cuda) if lookahead is None else lookahead
        heads = shape.num_key_value_heads, shape.head_dim
        self.cache = PagedCache(
            len(model.layers), num_blocks, config.block_size, *heads, model.dtype, self.device, model.layers[0]
        )
        store_by_inputs(model)
        self.model = model.with_attend(PagedAttention(self.cache))
        self.sampler = Sampler(shape.vocab_size, self.device, config.max_num_seqs)
        self.batches = Batches(self.sampler)
        self.last_ids = torch.zeros(config.max_num_seqs + 1, dtype=torch.int64, device=self.device)
        self.threads = None if cuda else threads_of(model)
        self.clock = GpuClock() if cuda else None
        if cuda:
            warm_up(self.model, config, num_blocks)
        self.decode_steps = self._decode_steps(config) if self.lookahead else None

    @torch.inference_mode()
    def start(self, work: Work) -> Arriving:
        """Start a step. Raises what the model raises, and RuntimeError after `close`."""
        if self.model is None:
            raise RuntimeError("This engine was closed; make a new one.")
        begun = None if self.clock is None else self.clock.mark()
        batch = self.batches.of(work.wanted)
        with nullcontext() if self.threads is None else self.threads.step(len(work.inputs.ids)):
            sampled = self._computed(work.inputs, batch)
        return Arriving(sampled, self.batches.logprobs, self.clock, begun)

    def close(self) -> None:
        """Drop graphs and cache; no step can be started afterwards."""
        self.decode_steps = self.model = self.cache = self.threads = None
        gc.collect()  # a graph and what it calls name one another
        if self.device.type == "cuda":
            torch.cuda.empty_cache()

    def _decode_steps(self, config: EngineConfig) -> DecodeSteps:
        return DecodeSteps(self.model, config, self.last_ids)

    def _computed(self, inputs: Inputs, batch: SamplingBatch | None) -> Sampled | None:
        """The next ids of those that sample, on the device; None where nobody does."""
        return self._sampled(self._decoded(inputs), inputs, batch)

    def _decoded(self, inputs: Inputs) -> Decoded:
        """Logits, by a graph where the step may have one."""
        if self.decode_steps is not None and inputs.decodes:
            return self.decode_steps.run(inputs)
        return Decoded(self.model(self._ids(inputs), inputs.step().to(self.device)), None)

    def _ids(self, inputs: Inputs) -> Tensor:
        """ids [T] on the device, those filled in that only it knows."""
        ids = self._sent(inputs.ids)
        if (inputs.ids == UNKNOWN).any():
            seats = self._sent(np.repeat(inputs.seats, inputs.new))
            ids = torch.where(ids == UNKNOWN, self.last_ids[seats], ids)
        return ids

    def _sampled(self, decoded: Decoded, inputs: Inputs, batch: SamplingBatch | None) -> Sampled | None:
        if batch is None:
            return None
        chosen = slice(batch.size)  # those that sample stand first among decodes
        if not inputs.samples[chosen].all():
            chosen = self._sent(inputs.samples.nonzero()[0])
        if decoded.ids is not None and batch.greedy:
            return Sampled(decoded.ids[chosen])
        sampled = self.sampler.sample(decoded.logits[chosen], batch)
        if self.lookahead:
            self.last_ids[self._sent(inputs.seats[inputs.samples])] = sampled.ids
        return sampled

    def _sent(self, array: np.ndarray) -> Tensor:
        """On the device, without a wait."""
        tensor = torch.from_numpy(array)
        return tensor.pin_memory().to(self.device, non_blocking=True) if self.device.type == "cuda" else tensor
