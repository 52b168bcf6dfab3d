"""What an engine refuses, how it fails, and how requests end from outside."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from memory import VOCAB, answer
from scenes import engine_of, request, serve

from labllm.cache.invariants import check
from labllm.serving.config import CONTINUOUS, PREFIX, RUNGS
from labllm.serving.engine import Engine
from labllm.serving.output import Output
from labllm.serving.params import SamplingParams
from labllm.serving.request import Request

EVERY = [pytest.param(name, lookahead, id=f"{name}-{lookahead}") for name in RUNGS for lookahead in (0, 1)]


def broken(reason: str) -> Request:
    if reason == "n = 9":
        params = SamplingParams(n=9)
        return Request("bad", [1], params, Output(params))
    return {
        "is empty": lambda: request("bad", [], 4),
        "the prompt has 50": lambda: request("bad", [1, VOCAB], 4),
        "the prompt has -1": lambda: request("bad", [1, -1], 4),
        "must be integers": lambda: request("bad", [1, "a"], 4),
        "exceed max_model_len = 64": lambda: request("bad", [1] * 60, 5),
        "being served already": lambda: request("good", [1], 4),
        "arrival must be a finite number": lambda: request("bad", [1], 4, arrival=math.nan),
        "deadline must be a finite number": lambda: request("bad", [1], 4, deadline=math.inf),
        "priority must be a finite number": lambda: request("bad", [1], 4, priority=math.nan),
    }[reason]()


@pytest.mark.parametrize(
    "reason",
    [
        "is empty",
        "the prompt has 50",
        "the prompt has -1",
        "must be integers",
        "exceed max_model_len = 64",
        "being served already",
        "arrival must be a finite number",
        "deadline must be a finite number",
        "priority must be a finite number",
        "n = 9",
    ],
)
def test_refused_with_the_reason_and_nobody_else_is_touched(reason: str) -> None:
    engine, good = engine_of(PREFIX, max_num_batched_tokens=64), request("good", [1, 2], 6)
    engine.add(good)
    engine.step()
    with pytest.raises(ValueError, match=reason):
        engine.add(broken(reason))
    serve(engine)
    assert good.output.token_ids == answer([1, 2], 6)


def test_a_request_that_no_cache_could_hold_never_comes_in() -> None:
    engine = engine_of(CONTINUOUS, num_blocks=4, max_model_len=64)
    with pytest.raises(ValueError, match=r"whole KV cache, which has room for 16 tokens"):
        engine.add(request("a", [1] * 10, 7))
    serve(engine, request("a", [1] * 10, 6))


def state(engine: Engine) -> None:
    check(engine.pool, [r.table for r in engine.scheduler.running])


@pytest.mark.parametrize(("name", "lookahead"), EVERY)
@pytest.mark.parametrize("steps", [0, 1, 2, 4])
def test_an_abort_at_any_moment_frees_its_place_and_changes_nobody(name: str, lookahead: int, steps: int) -> None:
    engine = engine_of(RUNGS[name], lookahead=lookahead, max_num_batched_tokens=64, max_num_seqs=2)
    stays, goes, waits = request("stays", [1, 2], 6), request("goes", [1, 2, 3], 40), request("waits", [4], 3)
    for one in (stays, goes, waits):
        engine.add(one)
    for _ in range(steps):
        engine.step()
    engine.abort("goes")
    engine.abort("goes")
    engine.abort("nobody")
    state(engine)
    serve(engine)
    assert goes.finish_reason == "abort" and goes.finish is not None
    assert goes.output.token_ids == answer([1, 2, 3], 40)[: len(goes.output.token_ids)]
    assert stays.output.token_ids == answer([1, 2], 6) and waits.output.token_ids == answer([4], 3)
    assert engine.pool.num_free == engine.pool.num_blocks


def test_step_reports_an_abort_once() -> None:
    engine, gone = engine_of(CONTINUOUS), request("gone", [1], 4)
    engine.add(gone)
    engine.abort("gone")
    assert engine.has_unfinished and engine.step() == [gone]
    assert not engine.has_unfinished and engine.step() == []


@pytest.mark.parametrize(("name", "lookahead"), EVERY)
@pytest.mark.parametrize("moment", ["run", "wait"])
def test_a_failing_step_ends_its_requests_and_the_engine_serves_on(name: str, lookahead: int, moment: str) -> None:
    engine = engine_of(RUNGS[name], lookahead=lookahead, max_num_batched_tokens=64, max_num_seqs=2)
    first, second, waiting = request("a", [1], 6), request("b", [2], 6), request("c", [3], 6)
    for one in (first, second, waiting):
        engine.add(one)
    engine.step()
    engine.executor.fail = moment
    serve(engine)
    for one in (first, second):
        assert (one.finish_reason, one.error) == ("error", "RuntimeError: the model fails")
    assert waiting.output.token_ids == answer([3], 6)
    assert engine.pool.num_free == engine.pool.num_blocks


@pytest.mark.parametrize("moment", ["run", "wait"])
def test_blocks_of_a_failed_step_are_not_found(moment: str) -> None:
    """The failed step has given names to blocks that hold nothing."""
    engine = engine_of(PREFIX, max_num_batched_tokens=64)
    engine.executor.fail = moment
    serve(engine, request("failed", [1] * 9, 2))
    again = request("again", [1] * 9, 2)
    serve(engine, again)
    assert again.num_cached == 0 and again.output.token_ids == answer([1] * 9, 2)


def test_deadlines_end_what_waits_and_what_runs() -> None:
    engine = engine_of(CONTINUOUS, max_num_seqs=1)
    runs, waits = request("runs", [1], 50, deadline=1.0), request("waits", [2], 50, deadline=0.5)
    patient = request("patient", [3], 3)
    for one in (runs, waits, patient):
        engine.add(one)
    changed = []
    while engine.has_unfinished:
        changed += engine.step()
        engine.clock.sleep(0.1)
    assert [r.finish_reason for r in (runs, waits, patient)] == ["deadline", "deadline", "length"]
    assert 0 < len(runs.output.token_ids) < 50 and not waits.output.token_ids
    assert waits in changed and 0.5 <= waits.finish < 0.7 and runs.finish >= 1.0


def test_a_late_deadline_means_nothing_to_the_next_of_that_name() -> None:
    engine = engine_of(CONTINUOUS)
    serve(engine, request("a", [1], 2, deadline=1.0))
    engine.clock.sleep(2)
    again = request("a", [1], 2)
    serve(engine, again)
    assert again.finish_reason == "length"


def test_the_log_is_a_copy_of_what_was_scheduled() -> None:
    engine = engine_of(CONTINUOUS, max_num_seqs=1)
    serve(engine, request("a", [1] * 5, 2), request("b", [2], 1))
    first, second, third = engine.log
    assert first.chunks == (("a", 0, 5),) and second.chunks == (("a", 5, 1),) and third.chunks == (("b", 0, 1),)
    assert (first.running, first.waiting, first.used_blocks) == (1, 1, 2)
    assert (third.running, third.waiting, third.used_blocks) == (1, 0, 1)
