from __future__ import annotations

import pytest

from labllm.serving.log import StepRecord
from labllm.serving.metrics import SLO, RequestMetrics, RunMetrics
from labllm.serving.output import Output
from labllm.serving.params import SamplingParams
from labllm.serving.request import Request


def served(
    name: str, arrival: float, first_scheduled: float, times: list[float], reason: str = "length", **state
) -> Request:
    """A request that got its tokens at `times`."""
    params = SamplingParams(max_tokens=99)
    request = Request(name, [1] * 10, params, Output(params), arrival)
    request.first_scheduled, request.token_times = first_scheduled, times
    request.finish = times[-1] if times else first_scheduled
    request.output.finish(reason)
    for field, value in state.items():
        setattr(request, field, value)
    return request


A = served("a", 1.0, 2.0, [3.0, 3.5, 5.0], num_cached=4)
B = served("b", 2.0, 2.0, [4.0], preemptions=2)


def test_a_request_by_hand() -> None:
    a = RequestMetrics.of(A)
    assert (a.queue, a.ttft, a.tpot, a.itl, a.e2e) == (1.0, 2.0, 1.0, (0.5, 1.5), 4.0)
    assert (a.num_prompt, a.num_tokens, a.num_cached) == (10, 3, 4)
    b = RequestMetrics.of(B)
    assert (b.queue, b.ttft, b.tpot, b.itl, b.e2e, b.preemptions) == (0.0, 2.0, None, (), 2.0, 2)


def test_a_request_without_a_token_has_no_metrics() -> None:
    with pytest.raises(ValueError, match="Request c has no metrics"):
        RequestMetrics.of(served("c", 0.0, 1.0, []))


def test_a_run_by_hand() -> None:
    log = [
        StepRecord(2.0, 4.0, (("a", 0, 10), ("b", 0, 10)), 2, 0, 6),
        StepRecord(4.0, 5.0, (("b", 10, 1), ("a", 12, 1)), 2, 0, 8),
        StepRecord(5.0, 6.0, (("a", 13, 1),), 1, 0, 4),
    ]
    run = RunMetrics.of([A, B, served("gone", 0.0, 0.0, [0.5], "abort")], log, max_num_seqs=4, num_blocks=10)
    assert (run.seconds, run.num_tokens, run.throughput) == (4.0, 4, 1.0)
    assert run.occupancy == (2 * 2 + 1 * 1 + 1 * 0) / (4 * 4), "b is over in the second step and a in the third"
    assert run.kv_use == (2 * 6 + 8 + 4) / (4 * 10)
    assert (run.preemptions, run.prefix_hits, run.num_failed) == (2, 0.2, 1)
    assert run.percentile("ttft", 0.5) == 2.0 and run.percentile("itl", 0.99) == 1.5
    assert run.percentile("tpot", 0.5) == 1.0, "an answer of one token has no TPOT"
    assert run.goodput(SLO(ttft=2.0, tpot=0.9)) == 0.25 and run.goodput(SLO(2.0, 1.0)) == 0.5
    assert set(run.named()) == {
        "throughput", "TTFT", "TTFT p99", "TPOT", "ITL p99", "occupancy", "KV use", "preemptions", "prefix hits"
    }  # fmt: skip


def test_without_a_log_there_are_no_shares() -> None:
    run = RunMetrics.of([B])
    assert run.occupancy is None and run.kv_use is None
    assert set(run.named()) == {"throughput", "TTFT", "TTFT p99", "preemptions"}
    with pytest.raises(ValueError, match="no tpot"):
        run.percentile("tpot", 0.5)
    with pytest.raises(ValueError, match="latency 'speed'"):
        run.percentile("speed", 0.5)
    with pytest.raises(ValueError, match="at least one request"):
        RunMetrics.of([])
