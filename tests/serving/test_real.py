"""The real executor's parts: host arrays are the steps that they stand for, and buckets compute what launches do."""

from __future__ import annotations

import random
import sys
import time
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
from labllm.serving.executors.real import RealExecutor
from labllm.serving.executors.real_graphs import DecodeSteps
from labllm.serving.executors.real_inputs import UNKNOWN, Preparer
from labllm.serving.executors.real_threads import WORTH, Threads, sharing_pays
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
    steps = DecodeSteps(executor.model, CONFIG, executor.last_ids)
    pool, generator = BlockPool(60, 4), torch.Generator().manual_seed(batch)
    executor.cache.pool.normal_(generator=generator)
    rows = [running(pool, (3 * i + 1) % 6, [5, 6, 7], 9 + 2 * i, 9 + 2 * i) for i in range(batch)]
    step = ScheduledStep(rows, [r.table.num_tokens - 1 for r in rows], (), batch, grown=rows)
    with torch.inference_mode():
        inputs = executor.prepare(step)
        inputs.ids[0] = UNKNOWN
        executor.last_ids[rows[0].seat] = 77
        before = executor.cache.pool.clone()
        decoded = steps.run(inputs)
        after = executor.cache.pool.clone()
        executor.cache.pool.copy_(before)
        executor.last_ids[rows[0].seat] = 77
        torch.testing.assert_close(decoded.logits, executor._launch(inputs))
        assert torch.equal(executor.cache.pool[:, :, :-1], after[:, :, :-1])
    changed = (after != before).flatten(3).any(dim=3).any(dim=0).any(dim=0)[:-1].nonzero()[:, 0].tolist()
    assert sorted(changed) == sorted(inputs.slots.tolist())
    assert decoded.ids.tolist() == decoded.logits.argmax(-1).tolist()


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def racing(alone: float, together: list[float]) -> Callable[[], None]:
    """A product that takes these seconds: by one thread, and one after the other by two."""
    turns = cycle(together)
    return lambda: time.sleep(alone if torch.get_num_threads() == 1 else next(turns))


def test_all_threads_are_used_while_sharing_pays(two_threads: None) -> None:
    assert sharing_pays(racing(2e-3, [1e-3]), 2)
    assert not sharing_pays(racing(2e-3, [1e-3, 1e-3, 1e-3, 9e-3]), 2), "one that had to wait is enough"
    assert torch.get_num_threads() == 2


def test_a_step_with_little_work_is_not_shared_and_others_by_what_the_last_race_said(two_threads: None) -> None:
    races: list[int] = []

    def product() -> None:
        races.append(torch.get_num_threads())
        time.sleep(2e-3 if races[-1] == 1 else 1e-3)

    threads = Threads(WORTH // 4, product)

    def during(num_tokens: int) -> int:
        with threads.step(num_tokens):
            return torch.get_num_threads()

    assert during(3) == 1 and not races
    assert during(4) == 2 and set(races) == {1, 2}
    count = len(races)
    assert (during(4), len(races)) == (2, count), "no race for a while"
    assert torch.get_num_threads() == 2


def test_an_executor_leaves_the_threads_as_they_were(executor: RealExecutor, two_threads: None) -> None:
    one = running(BlockPool(20, 4), 0, [7, 8], 2, 2)
    executor.run(ScheduledStep([one], [1], (), 1, grown=[one]))
    assert torch.get_num_threads() == 2
