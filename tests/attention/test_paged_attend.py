"""`PagedAttention` gives what gathering gives: decodes, prompts behind a paged prefix, both in a step, and
padding."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from labllm.attention import paged_attend
from labllm.attention.paged_attend import PagedAttention
from labllm.attention.paged_torch import GatherAttention
from labllm.bench import TOLERANCE, relative_error
from labllm.cache.paged import PagedCache
from labllm.cache.step import Step
from labllm.hardware import triton_mode

BATCHES = {  # tokens cached, new tokens
    "decodes": ([12, 0, 40], [1, 1, 1]),
    "decodes before prompts": ([12, 5, 0, 8], [1, 1, 6, 4]),
    "one prompt behind a prefix": ([21], [5]),
    "chunks of one token among prompts": ([12, 0, 3, 0, 9], [1, 6, 1, 2, 1]),
}


def written(batch: str, device: str, dtype: torch.dtype) -> tuple[PagedCache, Step, tuple[torch.Tensor, ...]]:
    """A cache of two layers with random contents, a step over scattered blocks of 8, and q, k, v of its new tokens."""
    num_cached, num_new = BATCHES[batch]
    torch.manual_seed(0)
    blocks = torch.randperm(40).tolist()
    tables = [[blocks.pop() for _ in range(-(-(c + n) // 8))] for c, n in zip(num_cached, num_new, strict=True)]
    cache = PagedCache(2, 40, 8, 2, 64, dtype, device)
    cache.pool.normal_()
    step = Step.paged(tables, num_cached, num_new, 8, device)
    q, k, v = (torch.randn(step.num_tokens, h, 64, device=device, dtype=dtype) for h in (4, 2, 2))
    return cache, step, (q, k, v)


@pytest.fixture(
    params=[
        "gathered",
        pytest.param(
            "kernels",
            marks=pytest.mark.skipif(triton_mode("cpu") != "interpreted", reason="Triton is not interpreted here"),
        ),
    ]
)
def route(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """On a CPU the kernels are only chosen when they are taken for compiled; then the interpreter runs them."""
    if request.param == "kernels":
        monkeypatch.setattr(paged_attend, "triton_mode", lambda device: "compiled")
    return request.param


@pytest.mark.parametrize("window", [None, 1, 20])
@pytest.mark.parametrize("batch", BATCHES)
def test_it_equals_gathering(batch: str, window: int | None, route: str) -> None:
    cache, step, qkv = written(batch, "cpu", torch.float32)
    expected = GatherAttention(cache)(*qkv, 1, step, window)
    before = cache.pool.clone()
    cache.pool[1, :, step.slot_mapping] = float("nan")  # so that this step's tokens must be stored to be seen
    out = PagedAttention(cache)(*qkv, 1, step, window)
    assert relative_error(out, expected) < TOLERANCE["float32"]
    assert torch.equal(cache.pool, before)


def test_padding_gives_zeros_and_writes_nothing(route: str) -> None:
    cache, step, qkv = written("decodes", "cpu", torch.float32)
    expected = GatherAttention(cache)(*qkv, 0, step)
    real = torch.tensor([True, False, True])
    padded = dataclasses.replace(
        step,
        seq_lens=step.seq_lens.where(real, 0),
        slot_mapping=step.slot_mapping.where(real, -1),
        block_table=step.block_table.where(real[:, None], -1),
        host_lengths=(),
    )
    before = cache.pool[:, :, :-1].clone()
    out = PagedAttention(cache)(*qkv, 0, padded)
    assert relative_error(out[real], expected[real]) < TOLERANCE["float32"] and not out[1].any()
    assert torch.equal(cache.pool[:, :, :-1], before)


def test_the_layers_share_one_workspace_a_batch_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paged_attend, "triton_mode", lambda device: "compiled")
    made: list[object] = []
    monkeypatch.setattr(paged_attend, "decode", lambda q, *rest: made.append(rest[-2]) or q)
    cache, step, qkv = written("decodes", "cpu", torch.float32)
    attend = PagedAttention(cache)
    for layer in (0, 1):
        attend(*qkv, layer, step)
    assert made[0] is made[1]


@pytest.mark.gpu
@pytest.mark.parametrize("window", [None, 20])
@pytest.mark.parametrize("batch", BATCHES)
def test_it_equals_gathering_on_a_gpu(batch: str, window: int | None) -> None:
    cache, step, qkv = written(batch, "cuda", torch.bfloat16)
    expected = GatherAttention(cache)(*qkv, 1, step, window)
    out = PagedAttention(cache)(*qkv, 1, step, window)
    assert relative_error(out, expected.double()) < TOLERANCE["bfloat16"]


@pytest.mark.gpu
def test_a_captured_step_serves_fewer_and_longer_sequences() -> None:
    """A graph captured over padding alone, then replayed over buffers that hold a real step and padded rows."""
    cache, real, (q, k, v) = written("decodes", "cuda", torch.bfloat16)
    expected = GatherAttention(cache)(q, k, v, 1, real)
    rows = 8
    buffers = [torch.zeros(rows, *x.shape[1:], dtype=x.dtype, device="cuda") for x in (q, k, v)]
    step = Step(
        slot_mapping=torch.full((rows,), -1, device="cuda"),
        block_table=torch.zeros(rows, 12, dtype=torch.int32, device="cuda"),
        seq_lens=torch.zeros(rows, dtype=torch.int32, device="cuda"),
        cu_seqlens=torch.arange(rows + 1, dtype=torch.int32, device="cuda"),
        last=torch.arange(rows, device="cuda"),
        max_query_len=1,
        max_seq_len=96,
    )
    attend = PagedAttention(cache)
    attend(*buffers, 1, step)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = attend(*buffers, 1, step)
    for buffer, x in zip(buffers, (q, k, v), strict=True):
        buffer[:3] = x
    step.slot_mapping[:3], step.seq_lens[:3] = real.slot_mapping, real.seq_lens
    step.block_table[:3, : real.block_table.shape[1]] = real.block_table
    cache.pool[1, :, real.slot_mapping] = float("nan")
    graph.replay()
    assert relative_error(out[:3], expected.double()) < TOLERANCE["bfloat16"] and not out[3:].any()
