"""The real executor's parts: host arrays are the steps that they stand for, and buckets compute what launches do."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from itertools import cycle
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
from scenes import request

from labllm.cache.pool import BlockPool
from labllm.cache.step import Step
from labllm.cache.table import BlockTable
from labllm.models.operations import FUSED
from labllm.models.pico import kept_pico
from labllm.models.pico.shape import PICO
from labllm.serving.config import CHUNKED
from labllm.serving.executors import real_threads
from labllm.serving.executors.real import RealExecutor
from labllm.serving.executors.real_graphs import DecodeSteps
from labllm.serving.executors.real_inputs import UNKNOWN, Preparer
from labllm.serving.executors.real_threads import WORTH, Threads, sharing_pays
from labllm.serving.executors.warm_up import warm_up
from labllm.serving.request import Request
from labllm.serving.scheduler import Chunk, ScheduledStep

CONFIG = CHUNKED.but(max_num_seqs=6, block_size=4, max_model_len=60, max_num_batched_tokens=64).for_model(PICO)


def running(pool: BlockPool, seat: int, prompt: list[int], known: int, total: int) -> Request:
    """A request with `total` tokens in its table, of which ids are known for the first `known`."""
    made = request(str(seat), prompt, 40)
    made.table, made.seat = BlockTable(pool), seat
    made.table.append(total)
    made.output.token_ids += [100 + i for i in range(known - len(prompt))]
    return made


@pytest.mark.parametrize("seed", range(5))
def test_arrays_are_the_step_that_tables_say(seed: int) -> None:
    draw, pool = random.Random(seed), BlockPool(100, 4)
    pool.allocate(draw.randrange(7))
    decodes = [running(pool, seat, [seat] * draw.randint(1, 9), 20, draw.randint(10, 20)) for seat in (4, 0, 2)]
    reads = [running(pool, seat, list(range(40)), 40, draw.randint(9, 40)) for seat in (5, 1)]
    contexts = [r.table.num_tokens - 1 for r in decodes]
    news = [draw.randint(2, 9) for _ in reads]
    chunks = [
        Chunk(r, r.table.num_tokens - new, new, i == 0) for i, (r, new) in enumerate(zip(reads, news, strict=True))
    ]
    everybody = decodes + reads
    inputs = Preparer(CONFIG)(ScheduledStep(decodes, contexts, chunks, 3 + sum(news), grown=everybody))
    computed, new = contexts + [c.num_computed for c in chunks], [1, 1, 1, *news]
    expected, found = Step.paged([r.table.blocks for r in everybody], computed, new, 4), inputs.step()
    for name in ("slot_mapping", "seq_lens", "cu_seqlens", "last"):
        assert torch.equal(getattr(found, name), getattr(expected, name)), name
    for row, one in enumerate(everybody):
        assert found.block_table[row, : len(one.table.blocks)].tolist() == one.table.blocks
    assert (found.lengths, found.max_query_len, found.max_seq_len) == (
        expected.lengths, expected.max_query_len, expected.max_seq_len
    )  # fmt: skip
    ids = [i for r, c, n in zip(everybody, computed, new, strict=True) for i in r.ids(c, c + n)]
    assert inputs.ids.tolist() == ids and inputs.samples.tolist() == [True] * 4 + [False]
    assert inputs.seats.tolist() == [4, 0, 2, 5, 1] and not inputs.decodes


def test_an_id_in_flight_is_unknown() -> None:
    pool = BlockPool(20, 4)
    known, flying = running(pool, 0, [7, 8], 5, 5), running(pool, 1, [7, 8], 5, 6)
    inputs = Preparer(CONFIG)(ScheduledStep([known, flying], [4, 5], (), 2, grown=[known, flying]))
    assert inputs.ids.tolist() == [102, UNKNOWN] and inputs.decodes


@pytest.fixture(scope="module")
def executor() -> RealExecutor:
    return RealExecutor(kept_pico("cpu", torch.float32, FUSED), CONFIG, 60)


@pytest.mark.parametrize("batch", [1, 2, 3, 5, 6])
def test_a_bucket_computes_what_launches_do_and_its_padding_writes_nothing(executor: RealExecutor, batch: int) -> None:
    runner = executor.runner
    steps = DecodeSteps(runner.model, CONFIG, runner.last_ids)
    pool, generator = BlockPool(60, 4), torch.Generator().manual_seed(batch)
    runner.cache.pool.normal_(generator=generator)
    rows = [running(pool, (3 * i + 1) % 6, [5, 6, 7], 9 + 2 * i, 9 + 2 * i) for i in range(batch)]
    step = ScheduledStep(rows, [r.table.num_tokens - 1 for r in rows], (), batch, grown=rows)
    with torch.inference_mode():
        inputs = executor.prepare(step)
        inputs.ids[0] = UNKNOWN
        runner.last_ids[rows[0].seat] = 77
        before = runner.cache.pool.clone()
        decoded = steps.run(inputs)
        after = runner.cache.pool.clone()
        runner.cache.pool.copy_(before)
        runner.last_ids[rows[0].seat] = 77
        torch.testing.assert_close(decoded.logits, runner._decoded(inputs).logits)
        assert torch.equal(runner.cache.pool[:, :, :-1], after[:, :, :-1])
    changed = (after != before).flatten(3).any(dim=3).any(dim=0).any(dim=0)[:-1].nonzero()[:, 0].tolist()
    assert sorted(changed) == sorted(inputs.slots.tolist())
    assert decoded.ids.tolist() == decoded.logits.argmax(-1).tolist()


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


class Course:
    """Time that only products spend: 2 s by one thread, and by two what `together` says, one after the other."""

    def __init__(self, *together: float) -> None:
        self.now, self.threads, self._turns = 0.0, [], cycle(together)

    def product(self) -> None:
        self.threads.append(torch.get_num_threads())
        self.now += 2.0 if self.threads[-1] == 1 else next(self._turns)


@pytest.fixture
def course(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Course]:
    def lay(*together: float) -> Course:
        made = Course(*together)
        monkeypatch.setattr(real_threads.time, "perf_counter", lambda: made.now)
        return made

    return lay


def test_sharing_pays_where_nobody_had_to_wait(course: Callable[..., Course], two_threads: None) -> None:
    assert sharing_pays(course(1.0).product, 2)
    assert not sharing_pays(course(1.0, 1.0, 1.0, 9.0).product, 2), "one that had to wait is enough"
    assert not sharing_pays(course(2.0).product, 2)
    assert torch.get_num_threads() == 2


def test_a_step_with_little_work_is_not_shared_and_others_by_what_the_last_race_said(
    course: Callable[..., Course], two_threads: None
) -> None:
    race = course(*[1.0] * 20, *[5.0] * 20)  # of ten shared products a race
    threads = Threads(WORTH // 4, race.product)

    def during(num_tokens: int) -> int:
        with threads.step(num_tokens):
            return torch.get_num_threads()

    assert during(3) == 1 and not race.threads
    assert during(4) == 2 and set(race.threads) == {1, 2}
    count, taken = len(race.threads), race.now
    race.now += 99 * taken
    assert (during(4), len(race.threads)) == (2, count), "a hundredth of the time"
    race.now += 2 * taken
    assert (during(4), during(4)) == (2, 2) and len(race.threads) == 2 * count
    race.now += 200 * taken
    assert during(4) == 1, "others want the cores now"
    assert torch.get_num_threads() == 2


def test_an_executor_leaves_the_threads_as_they_were(executor: RealExecutor, two_threads: None) -> None:
    one = running(BlockPool(20, 4), 0, [7, 8], 2, 2)
    executor.run(ScheduledStep([one], [1], (), 1, grown=[one]))
    assert torch.get_num_threads() == 2


def test_a_warm_up_meets_the_largest_step_and_writes_nothing(executor: RealExecutor) -> None:
    runner, seen = executor.runner, []
    runner.cache.pool.normal_(generator=torch.Generator().manual_seed(0))
    before = runner.cache.pool.clone()
    model = runner.model.with_attend(runner.model.attend)
    model.forward = lambda x, step: (
        seen.append([new for new, _ in step.lengths]),
        type(model).forward(model, x, step),
    )[1]
    warm_up(model, CONFIG, 60)
    assert torch.equal(runner.cache.pool[:, :, :-1], before[:, :, :-1])
    assert sum(seen[-1]) == CONFIG.max_num_batched_tokens and max(seen[-1]) <= CONFIG.max_model_len
    assert {new[0] == 1 for new in seen} == {True, False}, "prompts alone, and decodes beside one"
