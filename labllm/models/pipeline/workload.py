"""A pipeline's work as a workload, its inputs, and the float64 answer that no rank's memory has to hold.

A run is `steps` steps over all micro-batches: tokens that follow one another in decode, prompts in a prefill. Weights,
keys and values are random, each drawn from the seed and its own place in the model, so every rank has its part of the
same model and the reference can be computed anywhere, one layer at a time.

Ids come back from the last stage in every step and are waited for, but each step is given the same ids: the answer then
does not hang on which of two almost equal logits is larger.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from labllm.attention.paged_attend import PagedAttention
from labllm.bench import axis, torch_dtype
from labllm.cache.paged import PagedCache
from labllm.cache.step import Step
from labllm.models.config import ModelConfig
from labllm.models.load import from_config
from labllm.models.pico.shape import PICO
from labllm.models.shapes import SHAPES
from labllm.models.wide import wide_head, wide_layer

BLOCK_SIZE = 16
MODELS = {"pico": PICO} | {name: SHAPES[name] for name in ("Llama-3.1-8B", "Llama-3.1-70B")}


@dataclass(frozen=True)
class Pipelined:
    """`steps` steps of `micro_batches` micro-batches of `batch` sequences, by stages of `tensor_parallel` ranks each.

    A sequence brings `queries` new tokens to a step and sees `context` keys, those included.
    """

    micro_batches: int = axis(4, 1, 2, 3, 4, 6, 8, 12, 16, label="micro-batches")
    ranks: int = axis(2, 1, 2, 4, 8, label="ranks")
    batch: int = axis(4, 1, 2, 4, 8, 16, 32, 64, 128, unit="sequences", label="sequences a micro-batch")
    context: int = axis(512, 128, 512, 1024, 2048, 4096, unit="tokens", label="context")
    queries: int = axis(1, 1, 128, 512, 2048, 4096, unit="tokens", label="new tokens a sequence")
    steps: int = axis(4, 1, 2, 4, 8, label="steps in a row")
    tensor_parallel: int = axis(1, 1, 2, 4, 8, label="ranks a stage")
    model: str = axis("pico", *MODELS)
    dtype: str = axis("float32", "float32", "float16", "bfloat16")

    @property
    def config(self) -> ModelConfig:
        """The model's shape."""
        return MODELS[self.model]

    @property
    def stages(self) -> int:
        """Stages of the pipeline, p."""
        return self.ranks // self.tensor_parallel


class PipelineCase(NamedTuple):
    """What a run needs besides a model: of each micro-batch its ids [T] int64 and its step, both on the device."""

    workload: Pipelined
    device: str
    seed: int
    ids: list[Tensor]
    steps: list[Step]


def tables_of(w: Pipelined, seed: int) -> list[list[list[int]]]:
    """The blocks of each sequence of each micro-batch, in random order."""
    blocks = -(-w.context // BLOCK_SIZE)
    order = torch.randperm(w.micro_batches * w.batch * blocks, generator=torch.Generator().manual_seed(seed))
    return order.view(w.micro_batches, w.batch, blocks).tolist()


def inputs(w: Pipelined, device: str, seed: int) -> PipelineCase:
    """The micro-batches; no weights yet."""
    count = w.batch * w.queries
    ids = [(torch.arange(count, device=device) + j * count) % w.config.vocab_size for j in range(w.micro_batches)]
    cached, new = [w.context - w.queries] * w.batch, [w.queries] * w.batch
    steps = [Step.paged(tables, cached, new, BLOCK_SIZE, device) for tables in tables_of(w, seed)]
    return PipelineCase(w, device, seed, ids, steps)


def random_cache(case: PipelineCase, layers: range, kv_heads: range | None = None) -> PagedCache:
    """Keys and values of some layers, of all KV heads or some, as the whole model's cache has them."""
    w, config = case.workload, case.workload.config
    heads = range(config.num_key_value_heads) if kv_heads is None else kv_heads
    blocks = w.micro_batches * w.batch * -(-w.context // BLOCK_SIZE)
    shape = len(layers), blocks, BLOCK_SIZE, len(heads), config.head_dim
    cache = PagedCache(*shape, torch_dtype(w), case.device, layers[0])
    for place, layer in enumerate(layers):
        for head in range(config.num_key_value_heads):
            if head in heads:
                seed = (case.seed * config.num_hidden_layers + layer) * config.num_key_value_heads + head
                generator = torch.Generator(case.device).manual_seed(seed)
                drawn = torch.randn(2, cache.num_slots, config.head_dim, device=case.device, generator=generator)
                cache.pool[place, :, :-1, head - heads[0]] = drawn
    return cache


def reference(case: PipelineCase, rows: Tensor | None) -> Tensor:
    """Logits [micro_batches batch, V] of a step in float64, or `rows` of them: layer by layer, from the seed."""
    w, config, dtype = case.workload, case.workload.config, torch_dtype(case.workload)
    chosen = range(w.micro_batches * w.batch) if rows is None else rows.tolist()
    tables = [table for group in tables_of(w, case.seed) for table in group]
    cached, new = [w.context - w.queries] * len(chosen), [w.queries] * len(chosen)
    step = Step.paged([tables[row] for row in chosen], cached, new, BLOCK_SIZE, case.device)
    ids = torch.cat(case.ids).view(-1, w.queries)[list(chosen)].flatten()
    h = None
    for index in range(config.num_hidden_layers):
        only = range(index, index + 1)
        model = from_config(config, case.device, dtype, case.seed, layers=only)
        model = model.with_attend(PagedAttention(random_cache(case, only)))
        h = wide_layer(model, index, model.embed(ids).double() if h is None else h, step)
    return wide_head(model, h[step.last])
