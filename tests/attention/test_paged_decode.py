"""Every paged decode on the shape contract: scattered, shared and stale pages, poison wherever nobody may look."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from labllm.attention.paged import (
    Workspace,
    decode,
    gather_decode,
    paged_decode,
    split_decode,
    split_decode_once,
    split_decode_overlapped,
)
from labllm.attention.paged.layout import reference
from labllm.attention.paged.tiles import Tile
from labllm.attention.paged_workload import Paged
from labllm.bench import TOLERANCE, relative_error
from labllm.bench.poison import Poisoned
from labllm.hardware import default_device, triton_mode

DEVICE = default_device()
SPLIT = (split_decode, split_decode_once, split_decode_overlapped)
HALF = "bfloat16" if DEVICE == "cuda" else "float16"  # the interpreter's bfloat16 is wrong
NOWHERE = 2**31 - 1  # a block that no cache has
needs_triton = pytest.mark.skipif(triton_mode() in ("absent", "refused"), reason="Triton is not to be had here")
gpu = pytest.mark.gpu


def paged(
    lens: list[int],
    block_size: int = 16,
    heads: tuple[int, int] = (3, 1),
    dim: int = 64,
    dtype: str = "float32",
    shared: int = 0,
    stale: float = float("nan"),
) -> Paged:
    """Sequences of `lens` keys, the first `shared` blocks the same in all; slots that nobody filled hold `stale`.

    The table names blocks in random order and, past a length, one that does not exist.
    """
    generator = torch.Generator().manual_seed(sum(lens) + dim)
    needed = [-(-n // block_size) for n in lens]
    free = torch.randperm(sum(needed) + shared + 2, generator=generator).tolist()
    k, v = torch.full((2, len(free), block_size, heads[1], dim), stale)
    beginning = [free.pop() for _ in range(shared)]
    table = torch.full((len(lens), max(needed) + 2), NOWHERE, dtype=torch.int32)
    for row, length, blocks in zip(table, lens, needed, strict=True):
        for i in range(blocks):
            row[i] = beginning[i] if i < shared else free.pop()
            filled = min(block_size, length - i * block_size)
            k[row[i], :filled], v[row[i], :filled] = torch.randn(2, filled, heads[1], dim, generator=generator)
    q = torch.randn(len(lens), heads[0], dim, generator=generator)
    lengths = torch.tensor(lens, dtype=torch.int32)
    return Paged(*(x.to(DEVICE, getattr(torch, dtype)) for x in (q, k, v)), table.to(DEVICE), lengths.to(DEVICE))


def head_major(x: Paged) -> Paged:
    """The same pages with each head's keys side by side in memory."""
    k, v = (cache.transpose(1, 2).contiguous().transpose(1, 2) for cache in (x.k_cache, x.v_cache))
    return x._replace(k_cache=k, v_cache=v)


def kernels(x: Paged, *splits: int, tile: Tile | None = None) -> Iterator[tuple[str, Callable[..., Tensor]]]:
    """Each kernel, the splitting ones with workspaces full of NaN."""
    yield "paged", partial(paged_decode, tile=tile)
    for count in splits:
        for split in SPLIT if DEVICE == "cuda" else SPLIT[:2]:  # without a GPU the third is the first
            workspace = Workspace.of(x.q, x.k_cache, 0, count)
            workspace.partial.fill_(float("nan"))
            workspace.lse.fill_(float("nan"))
            yield f"{split.__name__}, {count} splits", partial(split, workspace=workspace, tile=tile)


def assert_right(x: Paged, window: int | None, *splits: int, tile: Tile | None = None) -> None:
    """All kernels, into poisoned outputs; a sequence of no keys gives exact zeros."""
    expected = reference(*x, window=window).view(x.q.shape)
    tolerance = TOLERANCE[str(x.q.dtype).removeprefix("torch.")]
    for name, run in kernels(x, *splits, tile=tile):
        with Poisoned():
            out = run(*x, window=window)
        error = relative_error(out, expected)
        assert error <= tolerance, f"{name}: {error}"
        assert not out[x.seq_lens == 0].any(), name


@needs_triton
@pytest.mark.parametrize("dtype", ["float32", HALF])
@pytest.mark.parametrize("dim", [64, 80, 96, 128, 256])
def test_head_dims_and_dtypes(dim: int, dtype: str) -> None:
    assert_right(paged([1, 0, 129, 40], dim=dim, dtype=dtype, shared=1), None, 3)


@needs_triton
@pytest.mark.parametrize("block_size", [1, 8, 24, 32, 64, 128, 256])
def test_block_sizes_need_not_be_the_tile(block_size: int) -> None:
    assert_right(paged([130, 1], block_size), None, 2, tile=Tile(32, 4, 2))


@needs_triton
@pytest.mark.parametrize("heads", [(1, 1), (3, 3), (6, 2), (8, 1), (14, 2), (32, 1)], ids=str)
def test_grouped_heads(heads: tuple[int, int]) -> None:
    assert_right(paged([70, 3], heads=heads), None, 2, tile=Tile(64, 4, 2))


@needs_triton
@pytest.mark.parametrize("window", [1, 16, 31, 1000])
def test_windows(window: int) -> None:
    assert_right(paged([1, 0, 130, 32]), window, 3, tile=Tile(32, 4, 2))


@needs_triton
def test_pages_by_head() -> None:
    x = paged([100, 17], heads=(4, 2), shared=1)
    assert head_major(x).k_cache.stride() != x.k_cache.stride()
    assert_right(head_major(x), None, 3, tile=Tile(16, 4, 2))


@needs_triton
def test_pages_that_are_views_of_one_pool() -> None:
    x = paged([50, 20])
    pool = torch.stack([x.k_cache, x.v_cache], 1)
    assert_right(x._replace(k_cache=pool[:, 0], v_cache=pool[:, 1], q=x.q.repeat(1, 1, 2)[..., :64]), None, 2)


@needs_triton
def test_counters_are_zero_after_every_launch() -> None:
    x = paged([100, 3, 0, 40])
    workspace = Workspace.of(x.q, x.k_cache, 0, splits=4)
    first = split_decode_once(*x, workspace=workspace, tile=Tile(16, 4, 2))
    assert not workspace.arrivals.any()
    assert torch.equal(split_decode_once(*x, workspace=workspace, tile=Tile(16, 4, 2)), first)


@needs_triton
def test_ranges_without_keys_weigh_nothing() -> None:
    x = paged([20, 0])
    workspace = Workspace.of(x.q, x.k_cache, 0, splits=3)
    split_decode(*x, workspace=workspace, tile=Tile(16, 4, 2))
    empty = [[False, False, True], [True] * 3]
    assert (workspace.lse.isinf() & (workspace.lse < 0)).all(-1)[:, 0].tolist() == empty


@needs_triton
@settings(max_examples=10, deadline=None)
@given(
    lens=st.lists(st.integers(0, 90), min_size=1, max_size=2),
    block_size=st.sampled_from([8, 16, 48]),
    heads=st.sampled_from([(1, 1), (4, 2)]),
    splits=st.integers(1, 5),
    window=st.none() | st.integers(1, 100),
)
def test_any_batch(lens: list[int], block_size: int, heads: tuple[int, int], splits: int, window: int | None) -> None:
    assert_right(paged(lens, block_size, heads, 16), window, splits, tile=Tile(16, 4, 2))


@pytest.mark.parametrize("window", [None, 1, 20])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_gather(dtype: str, window: int | None) -> None:
    x = paged([1, 0, 129, 40], dtype=dtype, shared=1, stale=7.0)
    out = gather_decode(*x, window=window)
    assert relative_error(out, reference(*x, window=window).view(x.q.shape)) <= TOLERANCE[dtype]
    assert not out[1].any()
    assert relative_error(gather_decode(*x, window=window, max_seq_len=129), out) <= TOLERANCE[dtype]


def test_the_reference_equals_attention_over_a_dense_copy() -> None:
    x = paged([37, 20], heads=(4, 2), stale=0.0)
    for b, length in enumerate((37, 20)):  # two query heads a KV head
        blocks = x.block_table[b, : -(-length // 16)].long()
        k, v = (c[blocks].flatten(0, 1)[:length].double().transpose(0, 1) for c in (x.k_cache, x.v_cache))
        q = x.q[b].double().view(2, 2, 64)
        expected = (q @ k.transpose(-1, -2) / 8).softmax(-1) @ v
        assert relative_error(reference(*x)[4 * b : 4 * b + 4], expected.view(4, 64)) < 1e-12
        recent = (q @ k[:, -5:].transpose(-1, -2) / 8).softmax(-1) @ v[:, -5:]
        assert relative_error(reference(*x, window=5)[4 * b : 4 * b + 4], recent.view(4, 64)) < 1e-12


@needs_triton
def test_no_sequences() -> None:
    x = paged([3])
    empty = Paged(x.q[:0], x.k_cache, x.v_cache, x.block_table[:0], x.seq_lens[:0])
    for run in (gather_decode, paged_decode, *SPLIT):
        assert run(*empty).shape == (0, 3, 64)


@pytest.mark.skipif(triton_mode("cpu") != "interpreted", reason="only the interpreter is wrong in bfloat16")
def test_bfloat16_cannot_reach_the_interpreter() -> None:
    x = Paged(*(t.cpu() for t in paged([5], dtype="bfloat16")))
    for run in (paged_decode, *SPLIT):
        with pytest.raises(ValueError, match="wrong results in bfloat16"):
            run(*x)


@gpu
@pytest.mark.parametrize("dim", [64, 128, 256])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_long_contexts(dim: int, dtype: str) -> None:
    assert_right(paged([5000, 0, 1, 4096, 131], 16, (32, 8), dim, dtype, shared=8), None, 1, 7, 33)


@gpu
def test_offsets_beyond_32_bits() -> None:
    x = paged([100, 40], 16, (4, 2), 128, "bfloat16")
    blocks = 2**31 // (16 * 2 * 128) + 64
    k, v = (torch.empty(blocks, 16, 2, 128, dtype=torch.bfloat16, device=DEVICE) for _ in "kv")
    used = len(x.k_cache)
    k[-used:], v[-used:] = x.k_cache, x.v_cache
    table = torch.where(x.block_table < used, x.block_table + blocks - used, x.block_table)
    assert_right(x._replace(k_cache=k, v_cache=v, block_table=table), None, 3)


@gpu
def test_a_captured_graph_follows_the_lengths() -> None:
    x = paged([300, 1000, 17, 64], 16, (8, 2), 128, "bfloat16")
    lens = x.seq_lens.clone()
    for _, run in kernels(x, 5):
        run(*x)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = run(*x)
        for now in ([300, 1000, 17, 64], [0, 999, 16, 0], [1, 1, 1, 1], [0, 0, 0, 0]):
            x.seq_lens.copy_(torch.tensor(now))
            graph.replay()
            assert relative_error(out, reference(*x).view(out.shape)) <= TOLERANCE["bfloat16"]
        x.seq_lens.copy_(lens)


@needs_triton
@pytest.mark.parametrize("splits", [1, 3])
def test_the_fastest_form_by_the_workspace(splits: int) -> None:
    x = paged([70, 0, 3])
    out = decode(*x, Workspace.of(x.q, x.k_cache, 0, splits), window=40)
    assert relative_error(out, reference(*x, window=40).view(out.shape)) <= TOLERANCE["float32"]


@gpu
def test_overlapped_launches_wait_for_their_neighbours() -> None:
    """Everything is written by the launch in front and read by the one behind, and the next decode overwrites where
    this one's partial answers lie: eagerly and in a graph, where launches follow without a gap."""
    batches = [paged([1000 + i, 2000 - i, 5 + i], 16, (8, 2), 128, "bfloat16") for i in range(8)]
    inputs = Paged(*(torch.zeros_like(t) for t in batches[0]))
    workspace = Workspace.of(inputs.q, inputs.k_cache, 0, 16)
    answers = torch.empty(2, 8, *inputs.q.shape, dtype=torch.bfloat16, device=DEVICE)

    def decode_all() -> None:
        for i, batch in enumerate(batches):
            for to, source in zip(inputs, batch, strict=True):
                to.copy_(source)
            for answer in answers:
                answer[i].copy_(split_decode_overlapped(*inputs, workspace=workspace))

    decode_all()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        decode_all()
    for run in (decode_all, graph.replay):
        answers.fill_(float("nan"))
        run()
        for i, batch in enumerate(batches):
            expected = reference(*batch).view(inputs.q.shape)
            for answer in answers:
                assert relative_error(answer[i], expected) <= TOLERANCE["bfloat16"], (run, i)
