"""The alpha-beta model: what it was made from is what the fit finds, over all decades alike."""

from __future__ import annotations

import math

import pytest

from labllm.parallel.communication import LINKS, AlphaBeta, efficiency, fit, travels, wire_bytes

SIZES = [2**i for i in range(10, 29, 2)]


def test_a_fit_finds_the_line_that_times_were_made_from():
    line = AlphaBeta(11e-6, 250e9)
    found = fit(SIZES, [line.seconds(size) for size in SIZES])
    assert found.alpha == pytest.approx(line.alpha) and found.beta == pytest.approx(line.beta)


def test_short_messages_count_as_much_as_long_ones():
    line = AlphaBeta(10e-6, 300e9)
    noisy = [line.seconds(size) * (1.1 if i % 2 else 0.9) for i, size in enumerate(SIZES)]
    found = fit(SIZES, noisy)
    assert found.alpha == pytest.approx(line.alpha, rel=0.1) and found.beta == pytest.approx(line.beta, rel=0.1)


def test_no_constant_is_negative():
    assert fit([1e6, 2e6, 4e6], [1e-3, 2.1e-3, 4.5e-3]).alpha == 0
    flat = fit([1e3, 1e6], [2e-5, 1.9e-5])
    assert flat.alpha == pytest.approx(1.95e-5, rel=0.01) and flat.beta == math.inf and flat.seconds(1e9) == flat.alpha


def test_two_sizes_are_needed():
    with pytest.raises(ValueError, match="two sizes at least; got 2 of 1"):
        fit([8, 8], [1e-5, 1e-5])


def test_latency_and_bandwidth_meet_at_alpha_times_beta():
    line = AlphaBeta(10e-6, 100e9)
    assert line.balanced == pytest.approx(1e6) and line.latency_share(line.balanced) == pytest.approx(0.5)
    assert line.latency_share(0) == 1 and AlphaBeta(0.0, 1e9).latency_share(0) == 0


def test_an_all_reduce_sends_its_bytes_nearly_twice():
    assert [travels(n) for n in (2, 4, 8)] == [1, 1.5, 1.75]
    assert LINKS["NVLink 4"].all_reduce(4, 5e-6) == AlphaBeta(5e-6, 300e9)
    assert AlphaBeta(5e-6, 300e9).among(4).beta == pytest.approx(200e9)
    with pytest.raises(ValueError, match="2 ranks at least"):
        travels(1)


def test_efficiency_is_what_talking_leaves():
    assert efficiency(1.0, 8, 0.0) == 1 and efficiency(1.0, 2, 0.5) == pytest.approx(0.5)


def test_every_operation_has_its_bytes_on_the_wire():
    sent = [wire_bytes(name, 1200, 4) for name in ("all-reduce", "one-shot", "all-gather", "reduce-scatter", "send")]
    assert sent == [1800, 3600, 900, 900, 1200]
    with pytest.raises(ValueError, match="not 'gossip'"):
        wire_bytes("gossip", 1, 2)
