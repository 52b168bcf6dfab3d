"""Sums over ranks, by torch.distributed and inside fused kernels: the same numbers, bit by bit on every rank."""

from __future__ import annotations

import sys

import cloudpickle
import pytest
import torch
from torch import Tensor, nn

from labllm.bench import TOLERANCE, relative_error
from labllm.hardware import triton_mode
from labllm.parallel import Workers, rank, world
from labllm.parallel.exchange import Exchange
from labllm.parallel.linear import RowParallelLinear, VocabParallelEmbedding
from labllm.parallel.sum_norm import SumAddNorm
from labllm.parallel.tensor import ALL_REDUCE, TensorParallel

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # the ranks cannot import this file
interpreted = pytest.mark.skipif(triton_mode("cpu") != "interpreted", reason="Triton is not interpreted here")
H, K, N = 48, 20, 10


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def collectives() -> list[Tensor]:
    ranks = TensorParallel.of()
    mine = drawn(4, 3, seed=ranks.rank)
    return [ranks.reduce(mine.clone()), ranks.gather(mine), ranks.gather(mine, dim=1), ranks.reduce_scatter(mine)]


def test_what_ranks_exchange(workers: Workers) -> None:
    every = [drawn(4, 3, seed=r) for r in range(2)]
    for number, (total, rows, columns, part) in enumerate(workers.call(collectives)):
        torch.testing.assert_close(total, every[0] + every[1])
        assert torch.equal(rows, torch.cat(every)) and torch.equal(columns, torch.cat(every, dim=1))
        torch.testing.assert_close(part, (every[0] + every[1])[2 * number : 2 * number + 2])


def test_one_rank_talks_to_nobody() -> None:
    x = drawn(4, 3)
    alone = TensorParallel()
    assert alone.reduce(x) is x and alone.gather(x) is x and alone.reduce_scatter(x) is x


def test_a_strategy_that_does_not_exist() -> None:
    with pytest.raises(ValueError, match=r"torch\.distributed, one-shot, push"):
        TensorParallel.of(all_reduce="carrier pigeon")


def row_parallel(strategy: str) -> Tensor:
    weight, bias = drawn(N, 2 * K, seed=1), drawn(N, seed=2)
    linear = nn.Linear(K, N, bias=rank() == 0).requires_grad_(False)
    row = RowParallelLinear(linear, TensorParallel.of(all_reduce=strategy))
    row.load_tensor("weight", weight[:, rank() * K : (rank() + 1) * K])
    if rank() == 0:
        row.load_tensor("bias", bias)
    return row(drawn(3, 2 * K, seed=3)[:, rank() * K : (rank() + 1) * K])


@pytest.mark.parametrize("strategy", ["torch.distributed", pytest.param("push", marks=interpreted)])
def test_a_row_parallel_linear_adds_its_bias_once(workers: Workers, strategy: str) -> None:
    assert strategy in ALL_REDUCE
    expected = torch.nn.functional.linear(drawn(3, 2 * K, seed=3), drawn(N, 2 * K, seed=1), drawn(N, seed=2))
    first, second = workers.call(row_parallel, strategy)
    torch.testing.assert_close(first, expected)
    assert torch.equal(first, second)


def embedding(ids: Tensor) -> Tensor:
    table, rows = drawn(7, H), 4
    part = VocabParallelEmbedding(rank() * rows, rows, H, TensorParallel.of())
    part.weight.data = torch.nn.functional.pad(table, (0, 0, 0, 1))[rank() * rows : (rank() + 1) * rows]
    return part(ids)


def test_an_embedding_of_a_vocabulary_that_ranks_do_not_divide(workers: Workers) -> None:
    ids = torch.tensor([6, 0, 3, 4, 4])
    for rows in workers.call(embedding, ids):
        assert torch.equal(rows, drawn(7, H)[ids])


def norm(h: Tensor, weight: Tensor, eps: float = 1e-5) -> Tensor:
    return torch.nn.functional.rms_norm(h, h.shape[-1:], weight, eps)


def sums_and_norms(dtype: torch.dtype, rows: list[int]) -> list[tuple[Tensor, Tensor]]:
    layer = SumAddNorm(H, 5, dtype)
    answers = []
    for call, tokens in enumerate(rows):
        x = drawn(tokens, H, seed=10 * call + rank()).to(dtype)
        x[0, 0] = -0.0  # which marks an empty place
        residual, weight = (drawn(*shape, seed=100 + call).to(dtype) for shape in ((tokens, H), (H,)))
        answers.append(layer(x, residual, weight, 1e-5))
    return answers


@interpreted
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_sum_add_and_norm_in_one_launch(workers: Workers, dtype: torch.dtype) -> None:
    rows = [3, 1, 5, 1, 1, 4, 5]
    answers = workers.call(sums_and_norms, dtype, rows)
    tolerance = TOLERANCE[str(dtype).removeprefix("torch.")]
    for call, tokens in enumerate(rows):
        parts = [drawn(tokens, H, seed=10 * call + r).to(dtype).double() for r in range(2)]
        for part in parts:
            part[0, 0] = 0
        residual, weight = (drawn(*shape, seed=100 + call).to(dtype).double() for shape in ((tokens, H), (H,)))
        total = residual + parts[0] + parts[1]
        for out, summed in (answers[0][call], answers[1][call]):
            assert relative_error(summed, total) < tolerance and relative_error(out, norm(total, weight)) < tolerance
        assert all(torch.equal(a, b) for a, b in zip(answers[0][call], answers[1][call], strict=True))


def products(steps: int) -> list[list[Tensor]]:
    """Two layers' worth of sums a step: push, norm and product, push on what is in flight, gated product, close."""
    exchange, ranks, answers = Exchange(H, 2), world(), []
    for step in range(steps):
        exchange.begin()
        xs, ws = drawn(ranks, 1, K, seed=step), drawn(ranks, H, K, seed=50 + step)
        residual = drawn(1, H, seed=99) if rank() == 0 else None
        h = exchange.push_linear(xs[rank()], ws[rank()], drawn(H, seed=5) if rank() == 0 else None, residual)
        y = exchange.collect_linear(h, drawn(N, H, seed=6), drawn(N, seed=7), drawn(H, seed=8), 1e-5)
        h = exchange.push_linear(xs[rank()] + 1, ws[rank()], None, h if rank() == 0 else None)
        z = exchange.collect_linear(h, drawn(2 * N, H, seed=9), None, drawn(H, seed=8), 1e-5, gated=True)
        answers.append([y, z, exchange.close(h, torch.float32)])
    return answers


@interpreted
def test_sums_inside_the_products_of_one_token(workers: Workers) -> None:
    first, second = workers.call(products, 3)
    for step in range(3):
        xs, ws = drawn(2, 1, K, seed=step).double(), drawn(2, H, K, seed=50 + step).double()
        gain = drawn(H, seed=8).double()
        h = drawn(1, H, seed=99) + drawn(H, seed=5) + xs[0] @ ws[0].mT + xs[1] @ ws[1].mT
        y = norm(h, gain) @ drawn(N, H, seed=6).double().mT + drawn(N, seed=7)
        h = h + (xs[0] + 1) @ ws[0].mT + (xs[1] + 1) @ ws[1].mT
        gate, up = (norm(h, gain) @ drawn(2 * N, H, seed=9).double().mT).chunk(2, dim=-1)
        for got, want in zip(first[step], (y, torch.nn.functional.silu(gate) * up, h), strict=True):
            assert relative_error(got, want) < TOLERANCE["float32"]
        assert all(torch.equal(a, b) for a, b in zip(first[step], second[step], strict=True))


def refused() -> list[str]:
    said = []
    layer, exchange = SumAddNorm(H, 2, torch.float32), Exchange(H, 1)
    for call in (
        lambda: layer(drawn(3, H), drawn(3, H), drawn(H), 1e-5),
        lambda: layer(drawn(1, H), drawn(2, H), drawn(H), 1e-5),
        lambda: SumAddNorm(H, 2, torch.float64),
        lambda: Exchange(0, 1),
        lambda: exchange.push_linear(drawn(2, K), drawn(H, K)),
        lambda: [exchange.push_linear(drawn(1, K), drawn(H, K)) for _ in range(2)],
    ):
        with pytest.raises(ValueError) as caught:
            call()
        said.append(str(caught.value))
    return said


@interpreted
def test_what_the_fused_sums_refuse(workers: Workers) -> None:
    for said in workers.call(refused):
        parts = "up to 2", "weight [48]", "2 or 4 bytes", "at least 1", "x must be [1, K]", "at most 1 sums"
        assert all(part in sentence for part, sentence in zip(parts, said, strict=True)), said
