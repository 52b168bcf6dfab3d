"""Buffers: what the timeline may never do, and what it comes to in the plain cases."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labllm.cuda.timeline import timeline
from labllm.cuda.timeline_view import STEPS, buffering, look


def test_plain_cases_by_hand() -> None:
    assert timeline(8, 1, 1.0).end == 16
    assert timeline(8, 2, 1.0).end == 9 and timeline(8, 2, 0.5).end == 8.5
    assert timeline(8, 3, 1.0).end == 9, "a third buffer gains nothing where two hide the fetch"
    assert timeline(8, 2, 2.0).end > timeline(8, 3, 2.0).end == 10


@given(st.integers(1, 12), st.integers(1, 5), st.sampled_from([0.25, 0.5, 1.0, 1.5, 3.0]))
def test_no_buffer_is_filled_while_it_is_multiplied(steps: int, buffers: int, fetch: float) -> None:
    line = timeline(steps, buffers, fetch)
    for i, (arriving, product) in enumerate(zip(line.fetches, line.products, strict=True)):
        assert product.start >= arriving.end
        assert i == 0 or product.start >= line.products[i - 1].end
        assert i < buffers or arriving.start >= line.products[i - buffers].end
    assert 0 < line.busy <= 1 and line.end >= timeline(steps, buffers + 1, fetch).end


def test_refusals() -> None:
    for arguments in ((0, 1, 1.0), (1, 0, 1.0), (1, 1, 0.0)):
        with pytest.raises(ValueError, match=r"at least one|some time"):
            timeline(*arguments)


def test_the_panel_says_what_one_more_buffer_would_do() -> None:
    assert "take turns" in look(1, 1.0).sentence and "50%" in look(1, 1.0).sentence
    assert "one more buffer gains nothing" in look(2, 1.0).sentence
    assert "one more would make it" in look(2, 3.0).sentence
    assert list(look(2, 1.0).table["time (products)"]) == [2 * STEPS, STEPS + 1, STEPS + 1, STEPS + 1]
    buffering()
