"""Sums over ranks, by torch.distributed and inside fused kernels: the same numbers, bit by bit on every rank."""

from __future__ import annotations

import sys

import cloudpickle
import pytest
import torch
from torch import Tensor, nn

from labllm.bench import TOLERANCE, relative_error
from labllm.hardware import triton_mode
from labllm.parallel import Workers, rank
from labllm.parallel.linear import RowParallelLinear, VocabParallelEmbedding
from labllm.parallel.sum_linear import SumLinear
from labllm.parallel.sum_norm import SumAddNorm
from labllm.parallel.tensor import ALL_REDUCE, TensorParallel

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # the ranks cannot import this file
interpreted = pytest.mark.skipif(triton_mode("cpu") != "interpreted", reason="Triton is not interpreted here")
H, K, N = 48, 20, 10
OUTPUTS = 600  # of a product whose sum two programs receive


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def collectives(strategy: str) -> list[Tensor]:
    ranks = TensorParallel.of(all_reduce=strategy)
    mine = drawn(4, 3, seed=ranks.rank)
    return [ranks.reduce(mine.clone()), ranks.gather(mine), ranks.gather(mine, dim=1), ranks.reduce_scatter(mine)]


@pytest.mark.parametrize("strategy", ["torch.distributed", pytest.param("push", marks=interpreted)])
def test_what_ranks_exchange(workers: Workers, strategy: str) -> None:
    every = [drawn(4, 3, seed=r) for r in range(2)]
    for number, (total, rows, columns, part) in enumerate(workers.call(collectives, strategy)):
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


def products(calls: int) -> list[Tensor]:
    layer, answers = SumLinear(OUTPUTS, torch.float32), []
    for call in range(calls):
        x, weight = drawn(2, 1, K, seed=call)[rank()], drawn(2, OUTPUTS, K, seed=50 + call)[rank()]
        weight[7] = -0.0  # which marks an empty place
        bias, residual = (drawn(OUTPUTS, seed=5), drawn(1, OUTPUTS, seed=6)) if rank() == 0 else (None, None)
        answers.append(layer(x, weight, bias, residual))
    return answers


@interpreted
def test_products_that_send_as_they_compute(workers: Workers) -> None:
    first, second = workers.call(products, 5)
    for call in range(5):
        xs, ws = drawn(2, 1, K, seed=call).double(), drawn(2, OUTPUTS, K, seed=50 + call).double()
        ws[:, 7] = 0
        expected = drawn(1, OUTPUTS, seed=6) + drawn(OUTPUTS, seed=5) + xs[0] @ ws[0].mT + xs[1] @ ws[1].mT
        assert relative_error(first[call], expected) < TOLERANCE["float32"]
        assert torch.equal(first[call], second[call])


def refused() -> list[str]:
    said = []
    layer, linear = SumAddNorm(H, 2, torch.float32), SumLinear(H, torch.float32)
    for call in (
        lambda: layer(drawn(3, H), drawn(3, H), drawn(H), 1e-5),
        lambda: layer(drawn(1, H), drawn(2, H), drawn(H), 1e-5),
        lambda: SumAddNorm(H, 2, torch.float64),
        lambda: SumLinear(H, torch.int32),
        lambda: linear(drawn(2, K), drawn(H, K)),
        lambda: linear(drawn(1, K).half(), drawn(H, K)),
    ):
        with pytest.raises(ValueError) as caught:
            call()
        said.append(str(caught.value))
    return said


@interpreted
def test_what_the_fused_sums_refuse(workers: Workers) -> None:
    for said in workers.call(refused):
        parts = "up to 2", "weight [48]", "2 or 4 bytes", "2 or 4 bytes", "x must be [1, K]", "all in torch.float32"
        assert all(part in sentence for part, sentence in zip(parts, said, strict=True)), said
