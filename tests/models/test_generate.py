"""Generation and chunks: every way through the cache gives what recompute gives."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from labllm.attention.cached import CachedAttention
from labllm.cache.step import Step
from labllm.models.config import ModelConfig
from labllm.models.generate import generate_cached, generate_recompute, new_cache, stream_cached
from labllm.models.llama import Llama
from labllm.models.load import from_config, load
from labllm.models.rope import RopeConfig

MAX_LEN = 24


@cache
def tiny() -> Llama:
    """Two layers, one of them windowed, in float64, so that paths differ by rounding of 1e-15 and errors stand out."""
    config = ModelConfig("qwen2", 31, 16, 24, 2, 4, 2, 6, 64, RopeConfig(), (5, None), qkv_bias=True)
    model = from_config(config, dtype=torch.float64)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(8)
    return model


@st.composite
def split_batches(draw: st.DrawFn) -> list[list[int]]:
    """For each sequence the sizes of its chunks."""
    sizes = st.lists(st.integers(1, 6), min_size=1, max_size=4)
    return draw(st.lists(sizes, min_size=1, max_size=4))


@settings(max_examples=60, deadline=None)
@given(batch=split_batches(), seed=st.integers(0, 2**16), data=st.data())
def test_any_split_into_chunks_equals_recompute(batch: list[list[int]], seed: int, data: st.DataObject) -> None:
    generator = torch.Generator().manual_seed(seed)
    sequences = [torch.randint(0, 31, (sum(chunks),), generator=generator) for chunks in batch]
    rows = data.draw(st.permutations(range(len(batch) + 1)))[: len(batch)]
    store = new_cache(tiny(), len(batch) + 1, MAX_LEN)
    store.pool.normal_(generator=generator)
    model = tiny().with_attend(CachedAttention(store))
    done, pieces = [0] * len(batch), [[] for _ in batch]
    for turn in range(max(map(len, batch))):
        live = [b for b, chunks in enumerate(batch) if turn < len(chunks)]
        new = [batch[b][turn] for b in live]
        step = Step.contiguous([done[b] for b in live], new, MAX_LEN, [rows[b] for b in live])
        ids = torch.cat([sequences[b][done[b] : done[b] + n] for b, n in zip(live, new, strict=True)])
        for b, n, logits in zip(live, new, model.hidden_logits(ids, step).split(new), strict=True):
            pieces[b].append(logits)
            done[b] += n
    for ids, logits in zip(sequences, pieces, strict=True):
        torch.testing.assert_close(torch.cat(logits), tiny().forward_dense(ids[None])[0])


@pytest.mark.parametrize("lengths", [(6,), (5, 5, 5), (1, 70, 8, 8)])
def test_cache_and_recompute_generate_the_same_ids(family: Any, ids_of: Callable, lengths: tuple[int, ...]) -> None:
    model = load(family.folder)
    prompts = [ids.tolist() for ids in ids_of(*lengths)]
    made = generate_cached(model, prompts, 7)
    assert made == generate_recompute(model, prompts, 7)
    assert [len(ids) for ids in made] == [7] * len(prompts)
    assert made[-1] == generate_cached(model, prompts[-1:], 7)[0]


def test_ids_come_one_step_at_a_time() -> None:
    stream = stream_cached(tiny(), [[1, 2], [3]], 3)
    first = next(stream)
    assert first.shape == (2,)
    assert torch.stack([first, *stream], dim=1).tolist() == generate_recompute(tiny(), [[1, 2], [3]], 3)


@pytest.mark.parametrize("generate", [generate_cached, generate_recompute])
def test_bad_prompts_are_refused(generate: Callable) -> None:
    with pytest.raises(ValueError, match="at least one token"):
        generate(tiny(), [[1], []], 2)
    with pytest.raises(ValueError, match="at least one token"):
        generate(tiny(), [], 2)
    with pytest.raises(ValueError, match="max_new_tokens >= 1"):
        generate(tiny(), [[1]], 0)
    with pytest.raises(ValueError, match=r"0 \.\. 30; got 31"):
        generate(tiny(), [[1, 31]], 2)
    with pytest.raises(ValueError, match="64 positions"):
        generate(tiny(), [[1] * 60], 5)


@pytest.mark.gpu
@pytest.mark.parametrize("lengths", [(6, 6), (1, 70, 8)])
def test_a_gpu_generates_what_a_cpu_does(family: Any, ids_of: Callable, lengths: tuple[int, ...]) -> None:
    prompts = [ids.tolist() for ids in ids_of(*lengths)]
    ours = load(family.folder, "cuda", torch.float64)
    expected = generate_cached(load(family.folder, dtype=torch.float64), prompts, 7)
    assert generate_cached(ours, prompts, 7) == generate_recompute(ours, prompts, 7) == expected
