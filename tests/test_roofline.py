"""The roofline's arithmetic against hand calculations, and its properties."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labllm.roofline import Cost, attainable_rate, attainable_seconds, attention, bound, causal_pairs, linear, ridge

positive = st.floats(1e-3, 1e15)


def test_a_cost_adds_and_scales() -> None:
    assert Cost(1, 2) + Cost(3, 4) == Cost(4, 6)
    assert 3 * Cost(1, 2) == Cost(3, 6)
    assert Cost(8, 2).intensity == 4
    assert Cost(1, 0).intensity == float("inf")


def test_a_negative_cost_is_refused() -> None:
    with pytest.raises(ValueError, match="negative"):
        Cost(-1, 0)


@given(positive, positive, positive, positive)
def test_the_floor_is_the_larger_of_two_times(flops: float, moved: float, peak: float, bandwidth: float) -> None:
    cost = Cost(flops, moved)
    seconds = attainable_seconds(cost, peak, bandwidth)
    assert seconds == max(flops / peak, moved / bandwidth)
    assert (bound(cost, peak, bandwidth) == "compute") == (flops / peak > moved / bandwidth)
    assert flops / seconds == pytest.approx(attainable_rate(cost.intensity, peak, bandwidth), rel=1e-9)


def test_the_ridge_separates_the_bounds() -> None:
    at = ridge(1000, 10)
    assert bound(Cost(at * 0.99, 1), 1000, 10) == "memory"
    assert bound(Cost(at * 1.01, 1), 1000, 10) == "compute"


@pytest.mark.parametrize(("peak", "bandwidth"), [(0, 1), (1, 0), (-1, 1)])
def test_a_roof_must_be_positive(peak: float, bandwidth: float) -> None:
    with pytest.raises(ValueError, match="positive"):
        attainable_seconds(Cost(1, 1), peak, bandwidth)


def test_a_linear_layer_by_hand() -> None:
    assert linear(2, 3, 5, element=4) == Cost(2 * 2 * 3 * 5, 4 * (2 * 3 + 2 * 5 + 3 * 5))
    assert linear(1, 4096, 4096, 2, weight=0.5).bytes == 2 * 2 * 4096 + 4096 * 4096 / 2


@given(st.integers(1, 40), st.integers(0, 40))
def test_causal_pairs_count_the_mask(queries: int, prefix: int) -> None:
    keys = queries + prefix
    assert causal_pairs(queries, keys) == sum(1 for i in range(queries) for j in range(keys) if j <= keys - queries + i)


def test_more_queries_than_keys_are_refused() -> None:
    with pytest.raises(ValueError, match="at least as many keys"):
        causal_pairs(3, 2)


def test_attention_counts_kv_heads_for_bytes_and_query_heads_for_flops() -> None:
    cost = attention(batch=2, queries=1, keys=100, q_heads=8, kv_heads=2, head_dim=64, element=2)
    assert cost.flops == 4 * 2 * 8 * 64 * 100
    assert cost.bytes == 2 * 2 * 64 * (2 * 8 * 1 + 2 * 2 * 100)
