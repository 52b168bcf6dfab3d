"""The ladder of allocators: same figures everywhere, virtual time, and an answer that is judged."""

from __future__ import annotations

import pytest

from labllm.bench import Rung, measure
from labllm.cache.allocators import Paged
from labllm.cache.ladder import ALLOCATORS, DEMAND, H200, KV_BYTES, PARAMETERS, Line, Replayed, Task, run, step_seconds
from labllm.cache.replay import Moment, Request

SMALL = Line(128, max_len=1024, slots=8192)


def test_records_say_what_an_allocator_admits_and_wastes() -> None:
    records = {r.rung: r for r in measure(ALLOCATORS, SMALL, device="cpu")}
    assert [r.status for r in records.values()] == ["ok"] * len(ALLOCATORS.rungs)
    assert {r.method for r in records.values()} == {"clock: virtual"}
    batch, waste = ({n: r.metrics[m].value for n, r in records.items()} for m in ("admitted batch", "waste"))
    assert batch["max length"] == SMALL.slots / SMALL.max_len
    assert batch["paged"] > batch["power of two"] > 2 * batch["max length"]
    assert waste["paged"] < 0.1 and waste["max length"] > 0.5
    again = {r.rung: r for r in measure(ALLOCATORS.only("paged"), SMALL, device="cpu")}["paged"]
    assert again.time == records["paged"].time and again.metrics == records["paged"].metrics


def test_virtual_time_by_hand() -> None:
    moment = Moment(0, {0: 1000}, (), {"tokens": 1000, "free": 0}, read=100, recomputed=0)
    expected = (2 * PARAMETERS + 1000 * KV_BYTES) / 4.8e12 + 100 * 2 * PARAMETERS / 989e12
    assert step_seconds(moment) == pytest.approx(expected) and H200.bandwidth == 4.8e12
    task = Task(SMALL, [Request(3, 2)])
    out = run(task, Paged(64, 16), lambda r: 64)
    assert out.ends == [5] and out.seconds == pytest.approx(sum(map(step_seconds, out.moments)))
    assert [m.read for m in out.moments] == [3, 0]


def test_an_allocator_that_drops_a_request_is_wrong() -> None:
    def drops(task: Task) -> Replayed:
        out = run(task, Paged(8192), lambda r: 1024)
        return out._replace(ends=[0, *out.ends[1:]])

    (record,) = measure(ALLOCATORS.only("paged").extended(Rung("drops", drops)).only("drops"), SMALL, device="cpu")
    assert record.status == "wrong" and "did not end as they should" in record.reason


@pytest.mark.parametrize("size", ["fast", "small", "full"])
def test_sizes_are_workloads_in_which_somebody_waits(size: str) -> None:
    for line in ALLOCATORS.sizes[size]:
        assert line.average <= line.max_len <= line.slots
        assert DEMAND * line.slots > line.slots
