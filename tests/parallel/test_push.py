"""Pushing sums between processes: every size, every call after another, with numbers that look like nothing."""

from __future__ import annotations

import pytest
import torch

from labllm.hardware import can
from labllm.kernels import one_shot as kernel
from labllm.parallel import Workers

pytestmark = pytest.mark.skipif(not can("triton", "cpu"), reason="needs Triton")


def test_nothing_is_minus_zero() -> None:
    for dtype, word in ((torch.float16, torch.int16), (torch.bfloat16, torch.int16), (torch.float32, torch.int32)):
        assert torch.tensor([-0.0], dtype=dtype).view(word).item() == kernel.nothing(dtype)


def test_sums_are_right_and_alike_on_all_ranks(workers: Workers) -> None:
    def fn(dtype: torch.dtype, long: bool) -> float:
        import torch.distributed as dist

        from labllm.parallel import rank
        from labllm.parallel.push import PushAllReduce

        all_reduce, generator, worst = PushAllReduce(dtype, long=long, programs=4), torch.Generator(), 0.0
        generator.manual_seed(rank())
        for size in (1, 1024, 4096, 7, 3000, 9000, 1025, 4096, 4096, 4096, 64, 2048):
            x = torch.randn(size, generator=generator).to(dtype)
            x[0], x[-1] = -0.0, float("inf") if size == 64 else x[-1]
            want = x.float().clone()
            dist.all_reduce(want)
            got = all_reduce(x)
            every = [torch.empty_like(got) for _ in range(2)]
            dist.all_gather(every, got)
            assert torch.equal(*every), "the ranks must hold the same bits"
            assert not (got.isinf() ^ want.isinf()).any() and (got.isinf().any() == (size == 64))
            worst = max(worst, (got.float() - want).nan_to_num(0, 0, 0).abs().max().item())
        return worst

    assert max(workers.call(fn, torch.float32, False)) == 0
    assert max(workers.call(fn, torch.float16, True)) < 4e-3


def test_calls_of_any_shape_go_through_one_strategy(workers: Workers) -> None:
    def fn() -> None:
        import torch.distributed as dist

        from labllm.parallel import rank
        from labllm.parallel.push import push

        all_reduce = push()
        for shape in ((2, 3), (0, 4), (5, 7, 11)):
            x = torch.full(shape, float(rank() + 1))
            assert torch.equal(all_reduce(x), torch.full(shape, 3.0)), shape
        dist.barrier()

    workers.call(fn)


def test_two_shots_give_the_same_bits_on_all_ranks(four_workers: Workers) -> None:
    def fn() -> float:
        import torch.distributed as dist

        from labllm.parallel import rank
        from labllm.parallel.push import PushAllReduce, PushTwoShot

        twice, once = PushTwoShot(torch.float32, programs=2), PushAllReduce(torch.float32, programs=2)
        generator, worst = torch.Generator().manual_seed(rank()), 0.0
        for size in (1, 255, 256, 1024, 2048, 2500, 6000, 3, 1024, 700):
            x = torch.randn(size, generator=generator)
            x[0] = -0.0
            got, every = twice(x), [torch.empty(size) for _ in range(4)]
            dist.all_gather(every, got)
            assert all(torch.equal(got.view(torch.int32), other.view(torch.int32)) for other in every)
            worst = max(worst, (got - once(x)).abs().max().item())
        return worst

    assert max(four_workers.call(fn)) == 0


def test_two_shots_are_for_long_messages_among_many() -> None:
    from labllm.parallel.push import two_shots_pay

    assert not two_shots_pay(2**30, 2)
    assert not two_shots_pay(2**17, 4) and two_shots_pay(2**20, 4)
    assert not two_shots_pay(2**14, 8) and two_shots_pay(2**18, 8)


def test_everyones_tensor_is_gathered(workers: Workers) -> None:
    def fn() -> tuple[list[int], bool]:
        from labllm.parallel import rank
        from labllm.parallel.push import PushAllReduce

        push = PushAllReduce(torch.float16, programs=4)
        total, every = push(torch.ones(3, dtype=torch.float16)), push.gather(torch.full((2, 700), rank() + 1.0).half())
        return list(every.shape), bool((total == 2).all() and (every[0] == 1).all() and (every[1] == 2).all())

    assert workers.call(fn) == [([2, 2, 700], True)] * 2


def test_what_does_not_fit_is_refused_in_a_sentence(workers: Workers) -> None:
    def fn() -> list[str]:
        from labllm.parallel.push import PushAllReduce

        all_reduce, found = PushAllReduce(torch.float32, programs=4), []
        for wrong in (lambda: all_reduce(torch.zeros(4, dtype=torch.float16)), lambda: PushAllReduce(torch.float64)):
            try:
                wrong()
            except ValueError as error:
                found.append(str(error))
        return found

    assert workers.call(fn)[1] == [
        "x must be torch.float32, got torch.float16",
        "dtype must be a floating one of 2 or 4 bytes, got torch.float64",
    ]


def test_ranks_see_each_others_memory(workers: Workers) -> None:
    def fn() -> tuple[list[float], bool]:
        import torch.distributed as dist

        from labllm.parallel import rank
        from labllm.parallel.symmetric import SymmetricBuffer

        buffer = SymmetricBuffer((2, 3), torch.bfloat16)
        zero = bool((buffer.own == 0).all())
        dist.barrier()
        buffer.of(1 - rank()).fill_(rank() + 1.0)
        dist.barrier()
        assert buffer.pointers.tolist()[rank()] == buffer.own.data_ptr()
        return buffer.own[1].tolist(), zero

    assert workers.call(fn) == [([2.0] * 3, True), ([1.0] * 3, True)]


@pytest.mark.gpu
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
@pytest.mark.parametrize("name", ["push", "one_shot", "two_shot"])
def test_every_strategy_sums_in_graphs_that_are_replayed(name: str) -> None:
    def fn() -> float:
        import torch.distributed as dist

        from labllm.parallel import push, rank, symmetric

        all_reduce = push.push() if name == "push" else getattr(symmetric, name)()
        worst = 0.0
        for size in (512, 32768, 131072, 2**22):
            xs = [torch.zeros(size, dtype=torch.bfloat16, device="cuda") for _ in range(4)]
            for x in xs:
                all_reduce(x)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                out = [all_reduce(x) for x in xs]
            for turn in range(50):
                for i, x in enumerate(xs):
                    x.fill_((turn + i) * (rank() + 1) / 8)
                graph.replay()
                for i, total in enumerate(out):
                    worst = max(worst, (total.float() - (turn + i) * 3 / 8).abs().max().item())
            graph.reset()
        dist.barrier()
        return worst

    with Workers(2) as pool:
        assert max(pool.call(fn)) < 0.13
