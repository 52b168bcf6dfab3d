"""Who goes first, and that nobody who ages waits for ever."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))
from scenes import engine_of, request

from labllm.serving.config import CHUNKED, CONTINUOUS, STATIC
from labllm.serving.engine import Engine
from labllm.serving.request import Request

AGEING = 2.0


def order(engine: Engine) -> list[str]:
    """Names in the order in which requests are read."""
    while engine.has_unfinished:
        engine.step()
        engine.clock.sleep(0.25)
    return [name for record in engine.log for name, computed, _ in record.chunks if computed == 0]


@pytest.mark.parametrize("config", [STATIC, CONTINUOUS, CHUNKED])
@pytest.mark.parametrize(("policy", "expected"), [("fcfs", "abcd"), ("shortest", "dbca"), ("priority", "cbda")])
def test_the_line_is_served_in_the_order_of_the_policy(config, policy: str, expected: str) -> None:
    options = {"max_num_batched_tokens": 64, "scheduling_policy": policy, "priority_ageing": AGEING}
    engine = engine_of(config, max_num_seqs=1, **options)
    engine.add(request("a", [1] * 9, 9, arrival=0.0, priority=5))
    engine.add(request("b", [1] * 3, 3, arrival=1.0, priority=0))
    engine.add(request("c", [1] * 4, 4, arrival=2.0, priority=-1))
    engine.add(request("d", [1] * 2, 2, arrival=3.0, priority=0))
    assert "".join(order(engine)) == expected


def test_equals_keep_the_order_in_which_they_came_also_when_set_back() -> None:
    engine = engine_of(CONTINUOUS, max_num_seqs=2)
    made = [request(name, [1], 6) for name in "abcd"]
    for one in made:
        engine.add(one)
    engine.step()
    engine.scheduler.preempt(made[1])
    assert order(engine) == ["a", "b", "b", "c", "d"]


arrivals = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 3), st.integers(1, 6)), min_size=2, max_size=14)


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(arrivals, st.sampled_from([CONTINUOUS, CHUNKED]), st.integers(1, 3))
def test_with_ageing_a_wait_is_bounded(traffic: list[tuple[int, int, int]], config, seats: int) -> None:
    """Nobody is overtaken by who came more than (its priority - the other's) * ageing seconds later."""
    engine = engine_of(
        config, max_num_seqs=seats, max_num_batched_tokens=64, scheduling_policy="priority", priority_ageing=AGEING
    )
    coming = sorted(
        (request(str(i), [1], tokens, arrival=float(at), priority=p) for i, (at, p, tokens) in enumerate(traffic)),
        key=lambda r: r.arrival,
    )
    read: list[Request] = []
    while coming or engine.has_unfinished:
        while coming and coming[0].arrival <= engine.clock.now():
            engine.add(coming.pop(0))
        seated = {r for r in engine.requests.values() if r.first_scheduled is not None}
        changed = engine.step()
        read += sorted({r for r in changed if len(r.output.token_ids) == 1} - seated, key=lambda r: r.arrival)
        engine.clock.sleep(1.0)
    for place, overtaker in enumerate(read):
        for waited in read[place + 1 :]:
            if waited.first_scheduled > overtaker.first_scheduled >= waited.arrival:
                assert overtaker.arrival - waited.arrival <= (waited.priority - overtaker.priority) * AGEING


def test_who_ages_is_served_in_a_flood_of_better_requests() -> None:
    """Requests of a better priority come at every step; without ageing the patient one would wait for all of them."""
    engine = engine_of(CONTINUOUS, max_num_seqs=1, scheduling_policy="priority", priority_ageing=AGEING)
    patient = request("patient", [1], 1, priority=3)
    engine.add(request("first", [1], 1))
    engine.add(patient)
    for step in range(40):
        engine.add(request(str(step), [1], 1, arrival=engine.clock.now(), priority=0))
        engine.step()
        engine.clock.sleep(1.0)
    assert patient.finished and patient.finish <= 3 * AGEING + 2


def test_the_shortest_first_starves_the_long() -> None:
    engine = engine_of(CONTINUOUS, max_num_seqs=1, scheduling_policy="shortest")
    engine.add(request("first", [1], 1))
    engine.add(long := request("long", [1], 30))
    for step in range(40):
        engine.add(request(str(step), [1], 1, arrival=engine.clock.now()))
        engine.step()
        engine.clock.sleep(1.0)
    assert long.first_scheduled is None
