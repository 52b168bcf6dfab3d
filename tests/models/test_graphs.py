"""Decode graphs: the buffers that a graph reads, padding, buckets, and on a GPU the logits of the model itself."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from labllm.attention.paged_attend import PagedAttention
from labllm.bench import TOLERANCE, relative_error
from labllm.cache.paged import PagedCache
from labllm.cache.step import Step
from labllm.models.buckets import Buckets, Rows, default_buckets
from labllm.models.config import ModelConfig
from labllm.models.graphs import DecodeGraphs, HostDecodes
from labllm.models.llama import Llama
from labllm.models.load import from_config
from labllm.models.operations import FUSED
from labllm.models.rope import RopeConfig

TINY = ModelConfig("llama", 61, 48, 80, 2, 4, 2, 16, 64, RopeConfig(), (None, None))
TABLES = [[3, 1], [6], [2, 7], [0], [5]]
CACHED = [5, 3, 4, 0, 1]


def tiny(device: str = "cpu", dtype: torch.dtype = torch.float32) -> Llama:
    """A model over a cache of eight blocks of four tokens that hold random keys and values."""
    cache = PagedCache(2, 8, 4, 2, 16, dtype, device)
    cache.pool.normal_(generator=torch.Generator(device).manual_seed(0))
    return from_config(TINY, device, dtype, attend=PagedAttention(cache), operations=FUSED)


def decode(rows: int, later: int = 0) -> tuple[torch.Tensor, Step]:
    cached = [tokens + later for tokens in CACHED[:rows]]
    return torch.arange(rows) + 10, Step.paged([[*blocks, 4] for blocks in TABLES[:rows]], cached, [1] * rows, 4)


@pytest.mark.parametrize("most", [1, 2, 3, 64, 65, 200, 256])
def test_buckets_reach_the_most_sequences_and_waste_little(most: int) -> None:
    buckets = default_buckets(most)
    assert buckets[-1] == most and list(buckets) == sorted(set(buckets)) and buckets[0] == 1
    for rows in range(1, most + 1):
        bucket = next(size for size in buckets if size >= rows)
        assert bucket < rows + 64 and bucket <= 2 * rows


def test_a_padded_bucket_gives_the_same_logits_and_writes_nothing_more() -> None:
    model, again = tiny(), tiny()

    def call(rows: Rows) -> Callable[[], torch.Tensor]:
        return lambda: model(rows.ids, rows.step(max_seq_len=12))

    buckets = Buckets(call, [8], 3, torch.device("cpu"))
    for rows, later in ((5, 0), (1, 0), (3, 0), (2, 1)):  # fewer rows than before: what was there became padding
        ids, step = decode(rows, later)
        logits = buckets.run(HostDecodes.of(ids, step))
        assert logits.shape[0] == 8
        assert relative_error(logits[:rows], again(ids, step)) < TOLERANCE["float32"]
        assert logits.isfinite().all()
        torch.testing.assert_close(model.attend.cache.pool[:, :, :-1], again.attend.cache.pool[:, :, :-1])


def test_on_a_cpu_every_step_runs_eagerly() -> None:
    model, again = tiny(), tiny()
    graphs = DecodeGraphs(model, 4, 12)
    graphs.capture()
    prompt = torch.arange(6), Step.paged([[4, 1]], [0], [6], 4)
    for ids, step in (decode(3), prompt, decode(5)):
        assert not graphs.takes(step)
        assert torch.equal(graphs.run(ids, step), again(ids, step))


def test_what_graphs_refuse() -> None:
    with pytest.raises(ValueError, match="keeps a cache"):
        DecodeGraphs(from_config(TINY), 4, 16)
    with pytest.raises(ValueError, match=r"max_seq_len in 1 \.\. 64"):
        DecodeGraphs(tiny(), 4, 65)
    with pytest.raises(ValueError, match=r"end at 4; got \[1, 2\]"):
        DecodeGraphs(tiny(), 4, 16, buckets=[2, 1])
    with pytest.raises(ValueError, match=r"positive and ascend; got \[0, 4\]"):
        DecodeGraphs(tiny(), 4, 16, buckets=[0, 4])


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_graphs_give_the_models_logits_on_a_gpu(dtype: torch.dtype) -> None:
    model, again = tiny("cuda", dtype), tiny("cuda", dtype)
    graphs = DecodeGraphs(model, 5, 12)
    ids, step = decode(2)
    graphs.run(ids.cuda(), step)
    again(ids.cuda(), step.to("cuda"))
    graphs.capture()
    for rows in (5, 1, 3, 4):
        ids, step = decode(rows)
        assert graphs.takes(step)
        found, expected = graphs.run(ids.cuda(), step), again(ids.cuda(), step.to("cuda"))
        assert relative_error(found, expected.double()) < TOLERANCE[str(dtype).removeprefix("torch.")]
    written = relative_error(model.attend.cache.pool[:, :, :-1], again.attend.cache.pool[:, :, :-1].double())
    assert written < TOLERANCE[str(dtype).removeprefix("torch.")]
    with pytest.raises(ValueError, match="5 sequences of 12 tokens"):
        graphs.run(ids.cuda(), Step.paged([[1, 2, 3, 4]], [12], [1], 4))
    graphs.clear()
    assert graphs.run(ids.cuda(), step).shape == (4, 61)
