"""The answer in float64: a layer of a model of any precision, its weights and its cache widened when they are needed.

One layer at a time, so that a model of 8 B parameters needs room for one layer more and not for four models. The
cache is read as it is, but this step's keys and values count in float64: rounding them is part of what is judged.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor

from labllm.attention.attend import CacheAttend
from labllm.attention.runs import attend_run, plan
from labllm.cache.step import Step
from labllm.models.llama import Llama
from labllm.models.rope import Angles


class WideAttention:
    """An `Attend` over a cache of any dtype that stores nothing: old keys come from the cache, new ones from the step.

    Every sequence's blocks are gathered, one sequence at a time.
    """

    def __init__(self, attend: CacheAttend) -> None:
        self.cache = attend.cache

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, layer: int, step: Step, window: int | None = None) -> Tensor:
        """q [T, Hq, D], k and v [T, Hkv, D], float64 -> [T, Hq, D]."""
        out, token = torch.empty_like(q), 0
        for row, (query_len, seq_len) in enumerate(step.lengths):
            tokens, cached = slice(token, token + query_len), seq_len - query_len
            one = Step.contiguous([cached], [query_len], seq_len, device=q.device)
            keys, values = (
                torch.cat((cache[step.block_table[row].long()].flatten(0, 1)[:cached].to(q.dtype), new[tokens]))[None]
                for cache, new in ((self.cache.k(layer), k), (self.cache.v(layer), v))
            )
            (run,) = plan(one, window)
            out[tokens] = attend_run(run, q[tokens], keys[:, run.first_key :], values[:, run.first_key :])
            token += query_len
        return out


def wide_layer(model: Llama, index: int, h: Tensor, step: Step) -> Tensor:
    """Layer `index` of a plain model whose `attend` keeps a cache: h [T, H] float64 -> [T, H] float64."""
    layer = copy.deepcopy(model.model.layers[str(index)]).double()
    angles = Angles.of(model.rope, step.positions, h.dtype)
    return layer(h, angles.cos, angles.sin, WideAttention(model.attend), step)


def wide_logits(model: Llama, ids: Tensor, step: Step) -> Tensor:
    """Logits [B, V] float64 of a plain model whose `attend` keeps a cache, for a step of ids [T] int64."""
    h = model.embed(ids).double()
    for index in model.layers:
        h = wide_layer(model, index, h, step)
    return wide_head(model, h[step.last])


def wide_head(model: Llama, h: Tensor) -> Tensor:
    """Final norm and head of a plain model or its last stage: h [N, H] float64 -> [N, V] float64."""
    norm = copy.deepcopy(model.model.norm).double()
    head = model.model.embed_tokens if model.config.tie_word_embeddings else model.lm_head
    return norm(h) @ head.weight.double().mT
