"""A hundred thousand steps of small engines under random requests, aborts, preemptions, deadlines and failing steps.

The pool is so small that requests set one another back all the time, and prompts begin alike, so blocks are shared.
After every step the pool accounts for every block, seats are unique, and every answer so far is a beginning of what the
prompt alone decides. A thousand steps run pico itself, against the ids of recompute.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from functools import cache
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))
from memory import MemoryExecutor, answer

from labllm.cache.invariants import check
from labllm.models.generate import generate_recompute
from labllm.models.heldout import held_out
from labllm.models.operations import FUSED
from labllm.models.pico import kept_pico, pico_tokenizer
from labllm.models.pico.shape import PICO
from labllm.parallel import Workers
from labllm.serving.clock import VirtualClock
from labllm.serving.config import RUNGS, EngineConfig
from labllm.serving.engine import Engine
from labllm.serving.executor import Executor
from labllm.serving.executors.ranks import RankExecutor
from labllm.serving.executors.real import RealExecutor
from labllm.serving.output import Output
from labllm.serving.params import SamplingParams
from labllm.serving.request import Request
from labllm.serving.source import Source

STEPS, PICO_STEPS = 100_000, 1_000
MAX_LEN = 40
DONE: Counter[str] = Counter()


class World:
    """An engine, the requests in it, and what each of them must write."""

    def __init__(self, engine: Engine, draw: random.Random) -> None:
        self.engine, self.draw, self.count = engine, draw, 0
        self.alive: dict[str, tuple[Request, list[int]]] = {}

    def add(self, prompt: list[int], expected: list[int], **fields: object) -> None:
        params = SamplingParams(max_tokens=len(expected), temperature=0.0, ignore_eos=True)
        arrival, self.count = self.engine.clock.now(), self.count + 1
        request = Request(f"r{self.count}", prompt, params, Output(params), arrival, **fields)
        self.engine.add(request)
        self.alive[request.id] = request, expected

    def step(self) -> None:
        had_work = bool(self.engine.requests)
        steps = len(self.engine.log)
        changed = self.engine.step()
        self.engine.clock.sleep(0.01)
        DONE["step"] += had_work
        DONE["preempted"] += sum(len(record.preempted) for record in self.engine.log[steps:])
        del self.engine.log[:]
        for request in changed:
            if request.finished:
                self._ended(request)
        self.check()

    def abort(self) -> None:
        if self.alive:
            self.engine.abort(self.draw.choice(list(self.alive)))
            self.check()

    def preempt(self) -> None:
        if self.engine.scheduler.running and self.engine.scheduler.config.batching == "continuous":
            self.engine.scheduler.preempt(self.draw.choice(self.engine.scheduler.running))
            self.check()

    def finish(self) -> None:
        """Serve to the end; every step but those that only read a step in flight brings somebody a token nearer."""
        patience = 200 + 10 * sum(request.limit for request, _ in self.alive.values())
        while self.engine.has_unfinished:
            self.step()
            patience -= 1
            assert patience, "the engine does not get on"
        assert not self.alive
        assert self.engine.pool.num_free == self.engine.pool.num_blocks

    def check(self) -> None:
        scheduler, executor = self.engine.scheduler, self.engine.executor
        check(self.engine.pool, [request.table for request in scheduler.running])
        seats = [request.seat for request in scheduler.running]
        assert len(set(seats)) == len(seats) and None not in seats
        waiting = [r for r in self.engine.requests.values() if r.seat is None]
        assert scheduler.num_waiting == len(waiting) and not any(r.table.blocks for r in waiting)
        for request, expected in self.alive.values():
            ids = request.output.token_ids
            assert ids == expected[: len(ids)]
            assert request.num_tokens - request.num_known in range(executor.lookahead + 1)

    def _ended(self, request: Request) -> None:
        _, expected = self.alive.pop(request.id)
        DONE[request.finish_reason] += 1
        DONE["cached"] += request.num_cached > 0
        if request.finish_reason == "length":
            assert request.output.token_ids == expected
        else:
            assert (request.error is None) == (request.finish_reason != "error")


def tiny(draw: random.Random, name: str) -> EngineConfig:
    """A config with two to six seats, blocks of one to four tokens and a budget that cuts prompts."""
    config = RUNGS[name].but(
        max_num_seqs=draw.randint(2, 6),
        block_size=draw.choice([1, 2, 4]),
        max_model_len=MAX_LEN,
        scheduling_policy=draw.choice(["fcfs", "shortest", "priority"]),
        priority_ageing=0.1,
    )
    return config.but(max_num_batched_tokens=draw.randint(6, 12) if config.enable_chunked_prefill else MAX_LEN)


def burst(world: World, draw: random.Random, steps: int) -> None:
    """Steps with a few things happening between any two of them."""
    for _ in range(steps):
        if draw.random() < 0.25 and len(world.alive) < 12:
            stem = draw.choice([[1, 2, 3, 4, 5, 6, 7, 8, 9], [1, 2, 3, 4, 9, 9, 9, 9], [5]])
            prompt = stem[: draw.randint(1, len(stem))] + [draw.randint(0, 3) for _ in range(draw.randint(0, 9))]
            expected = answer(prompt, draw.randint(1, MAX_LEN - len(prompt) - 1))
            deadline = world.engine.clock.now() + 0.2 if draw.random() < 0.05 else None
            world.add(prompt, expected, priority=draw.randint(0, 3), deadline=deadline)
        chance = draw.random()
        if chance < 0.02:
            world.abort()
        elif chance < 0.04:
            world.preempt()
        elif chance < 0.045 and world.alive:
            world.engine.executor.fail = draw.choice(["run", "wait"])
        world.step()


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32 - 1), name=st.sampled_from(sorted(RUNGS)), lookahead=st.integers(0, 1))
def serve_anything(seed: int, name: str, lookahead: int) -> None:
    draw = random.Random(seed)
    config = tiny(draw, name)
    num_blocks = -(-MAX_LEN // config.block_size) + draw.randint(0, 12)
    executor = MemoryExecutor(num_blocks * config.block_size, config.block_size, lookahead)
    world = World(engine(executor, config, num_blocks), draw)
    burst(world, draw, 250)
    world.finish()


def engine(executor: Executor, config: EngineConfig, num_blocks: int) -> Engine:
    return Engine.of(executor, config, num_blocks, 4096, VirtualClock(), log=[])


def test_engines_under_anything_that_may_happen() -> None:
    DONE.clear()
    while DONE["step"] < STEPS:
        serve_anything()
    kinds = ("length", "abort", "deadline", "error", "preempted", "cached")
    assert min(DONE[kind] for kind in kinds) > 100, DONE


@cache
@torch.inference_mode()
def written(prompt: tuple[int, ...], max_tokens: int) -> list[int]:
    """The greedy ids of pico by recompute, up to the first at which its two best logits nearly tie."""
    model, given = kept_pico("cpu", torch.float32), list(prompt)
    (ids,) = generate_recompute(model, [given], max_tokens)
    best = model.forward_dense(torch.tensor([given + ids]))[0, len(given) - 1 : -1].topk(2).values
    ties = (best[:, 0] - best[:, 1] < 1e-3).nonzero()
    return ids[: int(ties[0])] if len(ties) else ids


@pytest.fixture
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("name", sorted(RUNGS))
@pytest.mark.parametrize("lookahead", [0, 1])
def test_pico_under_anything_that_may_happen(name: str, lookahead: int, one_thread: None) -> None:
    """With lookahead 1 decodes go from id to id in buckets, as on a GPU."""
    draw = random.Random(1)
    config = tiny(draw, name)
    executor = RealExecutor(kept_pico("cpu", torch.float32, FUSED), config, few_blocks(config), lookahead)
    pico_serves(executor, config, draw, PICO_STEPS // 8)


def test_stages_under_anything_that_may_happen(workers: Workers, one_thread: None) -> None:
    """Ids that are on their way between stages belong to requests that may be gone when they arrive."""
    draw = random.Random(2)
    config = tiny(draw, "prefix")
    config = config.but(pipeline_parallel_size=2, kv_blocks=few_blocks(config)).for_model(PICO)
    executor = RankExecutor(Source("pico"), config, "cpu", workers, lookahead=1)
    pico_serves(executor, config, draw, PICO_STEPS // 8)
    executor.close()


def few_blocks(config: EngineConfig) -> int:
    return -(-MAX_LEN // config.block_size) + 4


def pico_serves(executor: Executor, config: EngineConfig, draw: random.Random, steps: int) -> None:
    """Random requests, aborts and preemptions against the ids of recompute."""
    text = pico_tokenizer().encode(held_out().text).ids
    prompts = [text[:9] + text[50 * i :][:length] for i, length in enumerate((1, 7, 12, 3))]
    world = World(engine(executor, config, few_blocks(config)), draw)
    DONE.clear()
    while DONE["step"] < steps:
        if draw.random() < 0.4 and len(world.alive) < 8:
            prompt = draw.choice(prompts)
            expected = written(tuple(prompt), 12)[: draw.randint(1, 12)]
            if expected:
                world.add(prompt, expected, priority=draw.randint(0, 3))
        if draw.random() < 0.05:
            world.abort()
        if draw.random() < 0.05:
            world.preempt()
        world.step()
    world.finish()
    assert DONE["length"] > 5 and DONE["abort"]
