"""Replaying requests on a contiguous arena: every slot has one kind at every step, and policies differ as they must."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labllm.cache.replay import KINDS, RULES, Request, lognormal_requests, replay, shares

REQUESTS = st.lists(st.builds(Request, st.integers(1, 8), st.integers(1, 8)), min_size=1, max_size=25)


@settings(max_examples=60, deadline=None)
@given(REQUESTS, st.integers(16, 50), st.integers(0, 4))
def test_kinds_tile_the_arena_at_every_step(requests: list[Request], num_slots: int, extra: int):
    for snapshot in replay(requests, num_slots, lambda r: min(num_slots, r.total + extra)):
        spans = sorted(span for kind in KINDS for span in snapshot.spans[kind])
        assert [start for start, _ in spans] == [sum(size for _, size in spans[:i]) for i in range(len(spans))]
        assert sum(size for _, size in spans) == num_slots
        assert sum(map(snapshot.share, KINDS)) == pytest.approx(1)
        assert snapshot.running + snapshot.waiting <= len(requests) and snapshot.waiting > 0
        assert all(size < snapshot.asked for _, size in snapshot.spans["free"]), "who waits has no hole that fits"


def test_by_hand():
    steps = list(replay([Request(2, 2), Request(1, 1), Request(3, 1)], 10, lambda r: 5))
    first = steps[0].spans
    assert first["tokens"] == ((0, 2), (5, 1))
    assert first["for later"] == ((2, 2), (6, 1))
    assert first["never used"] == ((4, 1), (7, 3))
    assert first["free"] == ()
    assert len(steps) == 1, "the second request ends after one token and the third takes its place"


def test_a_reservation_that_knows_the_length_wastes_nothing_inside_and_holes_outside():
    requests = lognormal_requests(300, 100, 1.0, 512)
    cautious = shares(list(replay(requests, 4096, lambda r: 512)))
    oracle = shares(list(replay(requests, 4096, lambda r: r.total)))
    assert oracle["never used"] == 0 < oracle["free"]
    assert cautious["free"] == 0 < cautious["never used"]
    assert oracle["tokens"] > 2 * cautious["tokens"]


def test_requests_are_seeded_and_stay_in_bounds():
    requests = lognormal_requests(2000, 200, 0.8, 1000, seed=3)
    assert requests == lognormal_requests(2000, 200, 0.8, 1000, seed=3) != lognormal_requests(2000, 200, 0.8, 1000)
    totals = [r.total for r in requests]
    assert min(totals) >= 2 and max(totals) <= 1000 and min(r.prompt for r in requests) >= 1
    assert sum(totals) / len(totals) == pytest.approx(200, rel=0.1)
    assert {r.total for r in lognormal_requests(5, 64, 0, 100)} == {64}


@pytest.mark.parametrize("wrong", [(0, 10, 1, 20), (5, 30, 1, 20), (5, 1, 1, 20), (5, 10, -1, 20)])
def test_requests_refuse(wrong: tuple):
    with pytest.raises(ValueError, match="Requests need"):
        lognormal_requests(*wrong)


def test_replay_refuses_a_reservation_that_cannot_work():
    for size in (3, 11):
        with pytest.raises(ValueError, match="must reserve between"):
            list(replay([Request(2, 2)], 10, lambda r, size=size: size))


def test_shares_need_a_step_in_which_somebody_waited():
    with pytest.raises(ValueError, match="no step"):
        shares(list(replay([Request(1, 1)], 10, lambda r: 5)))


@pytest.mark.parametrize(("total", "slots"), [(2, 2), (3, 4), (16, 16), (17, 20)])
def test_rules_by_hand(total: int, slots: int):
    request = Request(1, total - 1)
    assert [rule(request, 20) for rule in RULES.values()] == [20, slots, total]
