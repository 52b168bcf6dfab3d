"""The exercises of lab 11 ask for what the scheduler and the prefix pool do."""

from __future__ import annotations

from labllm.cache.pool import BlockPool
from labllm.cache.prefix import PrefixPool, chain
from labllm.labs.registry import exercises, get, solution_function
from labllm.serving.config import CHUNKED
from labllm.serving.output import Output
from labllm.serving.params import SamplingParams
from labllm.serving.request import Request
from labllm.serving.schedulers import scheduler_of
from labllm.serving.schedulers.plan import Plan

PARAMS = SamplingParams(max_tokens=50)


def arguments(name: str):
    exercise = get(name)
    return [exercise.arguments(case) for case in exercise.cases]


def a_scheduler(pool: BlockPool, budget: int = 64, policy: str = "fcfs"):
    config = CHUNKED.but(max_num_seqs=4, max_num_batched_tokens=budget, max_model_len=1000, scheduling_policy=policy)
    return scheduler_of(config, pool)


def running(scheduler, request: Request, computed: int) -> Request:
    """Seat a request whose first `computed` tokens are in the cache."""
    scheduler.add(request)
    scheduler._seat(request)
    request.table.grow(computed)
    return request


def a_request(number: int, tokens: int, arrival: float = 0.0) -> Request:
    return Request(str(number), [1] * tokens, PARAMS, Output(PARAMS), arrival=arrival)


def test_lab_11_has_its_three_exercises():
    assert sorted(e.name for e in exercises(11)) == ["choose_victims", "prefix_blocks", "split_budget"]


def test_split_budget_is_the_chunked_scheduler_s():
    for budget, unread in arguments("split_budget"):
        scheduler = a_scheduler(BlockPool(100, 4), max(budget, 4))
        scheduler._seats = list(range(len(unread)))
        requests = [running(scheduler, a_request(i, 5 + n, i), 5) for i, n in enumerate(unread)]
        step = Plan(budget)
        scheduler._decode(step)
        scheduler._read_on(step)
        given = {chunk.request.id: chunk.num_new for chunk in step.step().chunks}
        assert solution_function("split_budget")(budget, unread) == [given.get(r.id, 0) for r in requests]


def test_prefix_blocks_is_the_pool_s():
    for ids, size, known in arguments("prefix_blocks"):
        blocks = sorted(known.values())
        pool = PrefixPool(16, size)
        held = pool.allocate(16)
        assert set(blocks) <= set(held)
        ours, theirs, names = 0, b"", []
        for start in range(0, len(ids) - size + 1, size):
            block = ids[start : start + size]
            ours, theirs = hash((ours, *block)), chain(theirs, block)
            names.append(theirs)
            if ours in known:
                pool.name(known[ours], theirs)
        expected = pool.find(names[: (len(ids) - 1) // size])
        assert solution_function("prefix_blocks")(ids, size, known) == expected


def test_choose_victims_is_the_scheduler_s():
    for keys, gives, asks, free in arguments("choose_victims"):
        pool = BlockPool(sum(gives) + len(keys) + free, 4)
        scheduler = a_scheduler(pool)
        requests = []
        for number, (key, own) in enumerate(zip(keys, gives, strict=True)):
            requests.append(running(scheduler, a_request(number, 60, key), 4 * (own + 1)))
            pool.share(requests[-1].table.blocks[:1])  # the first block has another owner, who stays
        pool.allocate(pool.num_free - free)
        plan = Plan(64)
        scheduler._grow(requests[asks], plan)
        found = [requests.index(request) for request in plan.preempted]
        assert solution_function("choose_victims")(keys, gives, asks, free) == found
