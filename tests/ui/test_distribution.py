"""Distributions: curves that end at 100 %, and a sentence with the figures that the curves show."""

from __future__ import annotations

import pytest

from labllm.ui import distribution, draw

SAMPLES = {"one": [0.001 * n for n in range(1, 101)], "other": [0.01] * 99 + [5.0]}
ABOUT = ("longest gap", "s")


def test_a_curve_is_the_share_at_most():
    fig = distribution.chart(SAMPLES, *ABOUT, "title")
    lines = {line.get_label(): line for line in fig.axes[0].lines if not line.get_label().startswith("_")}
    assert set(lines) == set(SAMPLES)
    xs, shares = lines["one"].get_data()
    assert shares[-1] == 1 and shares[49] == pytest.approx(0.5) and xs[49] == pytest.approx(0.05)


def test_the_sentence_has_median_tail_and_the_promise():
    said = distribution.conclusion(SAMPLES, *ABOUT, promise=0.02)
    assert "one 50 ms (99 ms), 20% keep the promise" in said
    assert "other 10 ms (10 ms), 99% keep the promise" in said
    assert draw(distribution, SAMPLES, *ABOUT, "title", promise=0.02).sentence == said


@pytest.mark.parametrize("samples", [{}, {"one": []}, {"one": [0.0]}])
def test_nothing_is_no_distribution(samples):
    with pytest.raises(ValueError, match="at least one"):
        distribution.chart(samples, *ABOUT, "title")
