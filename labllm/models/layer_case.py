"""One decoder layer as a workload: a layer in the middle of a model over a filled paged cache, and its float64 answer.

The hidden state comes as such a layer hands it on, in two tensors whose sum it is. It is about as large as what the
layer adds to it: a much larger one would hide a mistake in the layer, and a much smaller one would make the answer all
that attention's rounding in 16 bits becomes behind the MLP.
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
from labllm.models.llama import Llama
from labllm.models.load import from_config, plain_twin
from labllm.models.operations import EAGER, Carried
from labllm.models.parts import MODELS
from labllm.models.wide import wide_layer

INDEX, BLOCK_SIZE = 1, 16  # the second layer: neither the first, whose state is not carried yet, nor the last


@dataclass(frozen=True)
class DecoderLayer:
    """One layer of `model` for `batch` sequences of `queries` new tokens that see `context` keys, those included."""

    context: int = axis(512, 128, 512, 1024, 2048, 4096, 8192, unit="tokens", label="context")
    queries: int = axis(1, 1, 128, 512, 2048, 8192, unit="tokens", label="new tokens a sequence")
    batch: int = axis(1, 1, 2, 4, 8, 16, 32, 64, 128, unit="sequences", label="batch")
    model: str = axis("pico", *MODELS)
    dtype: str = axis("float32", "float32", "float16", "bfloat16")


class LayerCase(NamedTuple):
    """A packed model of one layer over a filled cache, a step, and the hidden state [T, H] as a layer hands it on."""

    model: Llama
    h: Carried
    step: Step


def inputs(w: DecoderLayer, device: str, seed: int) -> LayerCase:
    """A layer with random weights, keys and values, its blocks in random order."""
    config, dtype = MODELS[w.model], torch_dtype(w)
    generator = torch.Generator(device).manual_seed(seed)
    model = from_config(config, device, dtype, seed, layers=range(INDEX, INDEX + 1), operations=EAGER)
    blocks = -(-w.context // BLOCK_SIZE)
    order = torch.randperm(w.batch * blocks, generator=torch.Generator().manual_seed(seed))
    heads = config.num_key_value_heads, config.head_dim
    cache = PagedCache(INDEX + 1, w.batch * blocks, BLOCK_SIZE, *heads, dtype, device)
    cache.pool[INDEX].normal_(generator=generator)
    tables = order.view(w.batch, blocks).tolist()
    step = Step.paged(tables, [w.context - w.queries] * w.batch, [w.queries] * w.batch, BLOCK_SIZE, device)
    shape = (w.batch * w.queries, config.hidden_size)
    h = (torch.randn(shape, device=device, dtype=dtype, generator=generator) for _ in range(2))
    return LayerCase(model.with_attend(PagedAttention(cache)), Carried(*h), step)


def reference(case: LayerCase, rows: Tensor | None) -> Tensor:
    """The hidden state behind the layer, float64 [T, H] or `rows` of it."""
    out = wide_layer(plain_twin(case.model), INDEX, case.h.branch.double() + case.h.residual.double(), case.step)
    return out if rows is None else out[rows]
