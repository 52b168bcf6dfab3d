"""A map of slots draws every slot once, row under row, and says each kind's share."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labllm.ui import slots
from labllm.ui.style import png

SPANS = {"tokens": [(0, 3), (8, 9)], "for later": [(3, 5)], "never used": [], "free": [(17, 3)]}


def test_spans_are_cut_at_the_ends_of_rows():
    ax = slots.chart(SPANS, 8, "A cache").axes[0]
    drawn = sorted(
        (round(path.vertices[0][1] + 0.42), *path.vertices[[0, 2], 0])
        for collection in ax.collections
        for path in collection.get_paths()
    )
    assert drawn == [(0, 0, 3), (0, 3, 8), (1, 0, 8), (2, 0, 1), (2, 1, 4)]
    assert [t.get_text() for t in ax.get_legend().get_texts()] == [
        "tokens 60 %",
        "for later 25 %",
        "never used 0 %",
        "free 15 %",
    ]


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 50), st.integers(1, 60), st.integers(1, 20))
def test_pieces_of_a_span_add_up_to_it(start: int, size: int, row: int):
    pieces = list(slots._cut(start, size, row))
    covered = [line * row + first + i for line, (first, length) in pieces for i in range(length)]
    assert covered == list(range(start, start + size))
    assert all(first + length <= row for _, (first, length) in pieces)


def test_sentence_and_picture_are_stable():
    assert slots.conclusion(SPANS) == "Of 20 slots: 60 % tokens, 25 % for later, 0 % never used, 15 % free."
    assert png(slots.chart(SPANS, 8, "A cache")) == png(slots.chart(SPANS, 8, "A cache"))


@pytest.mark.parametrize("wrong", [{}, {"a": [(1, 2)]}, {"a": [(0, 2)], "b": [(1, 2)]}, {"a": [(0, 2), (3, 1)]}])
def test_refuses_spans_that_do_not_tile(wrong: dict):
    with pytest.raises(ValueError, match="span"):
        slots.chart(wrong, 8, "A cache")
    with pytest.raises(ValueError, match="at least one slot"):
        slots.chart(SPANS, 0, "A cache")
