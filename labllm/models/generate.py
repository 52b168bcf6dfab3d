"""Greedy generation of a batch, the plainest loop: once with a KV cache, once recomputing everything.

Recompute passes over prompt + i tokens for the i-th new one, O(n^2) tokens for n; the cache passes over each token
once. Both emit the same ids in float32. A batch runs to its longest member here: what finishes early still takes its
seat (the scheduler's labs mend that). Prompts may have unequal lengths; nothing is padded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from labllm.attention.cached import CachedAttention
from labllm.attention.recompute import recompute
from labllm.cache.contiguous import ContiguousCache
from labllm.cache.step import Step
from labllm.models.llama import Llama

Prompts = Sequence[Sequence[int]]


def new_cache(model: Llama, num_seqs: int, max_len: int) -> ContiguousCache:
    """An empty contiguous cache of the model's shape, dtype and device."""
    config = model.config
    return ContiguousCache(
        config.num_hidden_layers,
        num_seqs,
        max_len,
        config.num_key_value_heads,
        config.head_dim,
        model.dtype,
        model.device,
    )


def generate_cached(model: Llama, prompts: Prompts, max_new_tokens: int) -> list[list[int]]:
    """The max_new_tokens greedy ids that follow each prompt, with a KV cache. Raises ValueError for bad prompts."""
    return collect(stream_cached(model, prompts, max_new_tokens))


def generate_recompute(model: Llama, prompts: Prompts, max_new_tokens: int) -> list[list[int]]:
    """As `generate_cached`, but every step passes over all tokens again."""
    return collect(stream_recompute(model, prompts, max_new_tokens))


def stream_cached(model: Llama, prompts: Prompts, max_new_tokens: int) -> Iterator[Tensor]:
    """Yield the next id of every prompt, [B] int64 on the model's device, max_new_tokens times."""
    lens = prompt_lengths(model, prompts, max_new_tokens)
    max_len = max(lens) + max_new_tokens
    model = model.with_attend(CachedAttention(new_cache(model, len(lens), max_len)))
    ids = torch.tensor([i for prompt in prompts for i in prompt], device=model.device)
    step = Step.prefill(lens, max_len, model.device)
    for made in range(max_new_tokens):
        ids = _next(model, ids, step)
        yield ids
        step = Step.decode([n + made for n in lens], max_len, model.device)


def stream_recompute(model: Llama, prompts: Prompts, max_new_tokens: int) -> Iterator[Tensor]:
    """As `stream_cached`, without a cache."""
    prompt_lengths(model, prompts, max_new_tokens)
    model = model.with_attend(recompute)
    rows = [torch.tensor(prompt, device=model.device) for prompt in prompts]
    for _ in range(max_new_tokens):
        ids = _next(model, torch.cat(rows), Step.uncached([len(row) for row in rows], model.device))
        yield ids
        rows = [torch.cat((row, ids[i : i + 1])) for i, row in enumerate(rows)]


@torch.inference_mode()
def _next(model: Llama, ids: Tensor, step: Step) -> Tensor:
    return model(ids, step).argmax(dim=-1)


def collect(steps: Iterator[Tensor]) -> list[list[int]]:
    """Steps of ids [B] -> the ids of each sequence."""
    return torch.stack(list(steps), dim=1).tolist()


def prompt_lengths(model: Llama, prompts: Prompts, max_new_tokens: int) -> list[int]:
    """Tokens of each prompt. Raises ValueError where the model cannot continue them by max_new_tokens."""
    lens = [len(prompt) for prompt in prompts]
    if not lens or min(lens) < 1 or max_new_tokens < 1:
        raise ValueError(
            f"Generation needs prompts of at least one token and max_new_tokens >= 1; "
            f"got prompt lengths {lens} and {max_new_tokens}."
        )
    vocab = model.config.vocab_size
    if bad := [i for prompt in prompts for i in prompt if not 0 <= i < vocab]:
        raise ValueError(f"Token ids must lie in 0 .. {vocab - 1}; got {bad[0]}.")
    if max(lens) + max_new_tokens > model.config.max_position_embeddings:
        raise ValueError(
            f"{max(lens)} prompt and {max_new_tokens} new tokens exceed the model's "
            f"{model.config.max_position_embeddings} positions."
        )
    return lens
