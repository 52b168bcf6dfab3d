"""Logits equal transformers' own in float32: every family, single and sharded, without and with a cache."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from labllm.attention.cached import CachedAttention
from labllm.cache.step import Step
from labllm.models.generate import generate_cached, new_cache
from labllm.models.llama import Llama
from labllm.models.load import load

TOLERANCE = 1e-4
MAX_LEN = 320


def compare(ours: Tensor, theirs: Tensor) -> None:
    """Largest absolute difference of logits, with the reference far from constant so that equality means something."""
    assert theirs.std() > 0.1
    torch.testing.assert_close(ours, theirs, atol=TOLERANCE, rtol=0)


def cached(model: Llama, num_seqs: int) -> Llama:
    cache = new_cache(model, num_seqs, MAX_LEN)
    cache.pool.normal_()  # left over from earlier sequences
    return model.with_attend(CachedAttention(cache))


def feed(model: Llama, chunks: list[Tensor], num_cached: list[int], rows: list[int] | None = None) -> Tensor:
    """Logits [T, V] of all new tokens of one step."""
    step = Step.contiguous(num_cached, [len(chunk) for chunk in chunks], MAX_LEN, rows)
    with torch.inference_mode():
        return model.hidden_logits(torch.cat(chunks), step)


@pytest.mark.parametrize("length", [1, 7, 300])
def test_prompts(family: Any, ids_of: Callable, length: int) -> None:
    (ids,) = ids_of(length)
    theirs = family.logits(ids)
    model = load(family.sharded)
    with torch.inference_mode():
        compare(model.forward_dense(ids[None])[0], theirs)
        compare(model(ids, Step.uncached([length])), theirs[-1:])
    compare(feed(cached(load(family.folder), 1), [ids], [0]), theirs)


def test_packed_batch_continuation_and_decode_over_a_left_over_cache(family: Any, ids_of: Callable) -> None:
    sequences = ids_of(23, 300, 9)
    theirs = [family.logits(ids) for ids in sequences]
    model, rows = cached(load(family.folder), 4), [2, 0, 3]
    done = [12, 280, 1]
    first = feed(model, [ids[:n] for ids, n in zip(sequences, done, strict=True)], [0, 0, 0], rows)
    compare(first, torch.cat([x[:n] for x, n in zip(theirs, done, strict=True)]))
    steps = [(1, 1, 1)] * 3 + [(5, 1, 2), (1, 12, 1)]
    for new in steps:
        chunks = [ids[n : n + m] for ids, n, m in zip(sequences, done, new, strict=True)]
        logits = feed(model, chunks, done, rows)
        compare(logits, torch.cat([x[n : n + m] for x, n, m in zip(theirs, done, new, strict=True)]))
        done = [n + m for n, m in zip(done, new, strict=True)]


def test_equal_decodes_follow_transformers_greedy_ids(family: Any, ids_of: Callable) -> None:
    prompts = torch.stack(ids_of(60, 60))
    theirs = family.reference.generate(
        prompts,
        max_new_tokens=6,
        do_sample=False,
        eos_token_id=None,
        pad_token_id=0,
        attention_mask=torch.ones_like(prompts),
    )
    assert generate_cached(load(family.folder), prompts.tolist(), 6) == theirs[:, 60:].tolist()


def test_half_precision_stays_close(family_of: Callable, ids_of: Callable) -> None:
    family = family_of("llama-3")
    (ids,) = ids_of(40)
    theirs = family.logits(ids)
    for dtype, bound in ((torch.bfloat16, 0.05), (torch.float16, 0.01)):
        model = load(family.folder, dtype=dtype)
        assert model.dtype == dtype and {p.dtype for p in model.parameters()} == {dtype}
        with torch.inference_mode():
            ours = model.forward_dense(ids[None])[0].float()
        assert (ours - theirs).norm() / theirs.norm() < bound
