"""Traces are seeded, stay in bounds and keep their average."""

from __future__ import annotations

import pytest

from labllm.cache.traces import TRACES, bimodal_requests, uniform_requests


@pytest.mark.parametrize("name", TRACES)
def test_a_trace_is_seeded_and_keeps_its_average(name: str) -> None:
    make = TRACES[name]
    requests = make(4000, 100, 4096, 1)
    assert requests == make(4000, 100, 4096, 1) != make(4000, 100, 4096, 2)
    totals = [request.total for request in requests]
    assert sum(totals) / len(totals) == pytest.approx(100, rel=0.08)
    assert min(totals) >= 2 and max(totals) <= 4096 and min(r.prompt for r in requests) >= 1
    assert max(r.total for r in make(500, 100, 128, 0)) <= 128
    with pytest.raises(ValueError, match="Requests need"):
        make(5, 200, 100, 0)


def test_shapes() -> None:
    totals = sorted(request.total for request in bimodal_requests(1000, 100, 4096))
    assert totals[0] >= 18 and totals[-1] <= 500 and not any(32 < total < 300 for total in totals)
    totals = [request.total for request in uniform_requests(4000, 100, 4096)]
    assert max(totals) <= 198 and sum(total <= 100 for total in totals) / 4000 == pytest.approx(0.5, abs=0.05)
