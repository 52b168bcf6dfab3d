"""The chart of waits: the first is a bar, the others marks, and one late token hides nothing."""

from __future__ import annotations

import pytest

from labllm.ui import pace
from labllm.ui.style import png

STEADY = [0.1] + [0.01] * 30


def test_it_draws_a_bar_for_the_first_and_a_mark_for_each_further_token():
    ax = pace.chart({"cached": STEADY}, prompt=64).axes[0]
    assert [bar.get_height() for bar in ax.patches] == [0.1]
    marks = next(line for line in ax.lines if line.get_label() == "cached")
    assert list(marks.get_xdata()) == list(range(2, 32)) and set(marks.get_ydata()) == {0.01}
    assert ax.get_ylim()[0] == 0 and "64" in ax.figure.texts[1].get_text()


def test_a_late_token_is_an_arrow_at_the_edge_and_is_counted():
    late = [*STEADY[:20], 9.0, *STEADY[20:]]
    ax = pace.chart({"cached": late}, prompt=64).axes[0]
    assert ax.get_ylim()[1] < 0.2
    assert any("1 wait beyond the frame" in text.get_text() for text in ax.figure.texts)


def test_of_few_tokens_all_are_in_the_frame():
    ax = pace.chart({"cached": [0.01, 0.01, 0.2]}, prompt=64).axes[0]
    assert ax.get_ylim()[1] > 0.2 and not any("beyond" in text.get_text() for text in ax.figure.texts)


def test_the_sentence_tells_steady_from_growing():
    growing = [0.1 + 0.01 * n for n in range(40)]
    said = pace.conclusion({"cached": STEADY, "recompute": growing}, prompt=64)
    assert "cached: the first token comes after 100 ms (64 tokens of prompt), each further one after 10 ms" in said
    assert "100 tokens/s" in said and "recompute" in said and "grow from 155 ms to 445 ms" in said


def test_nothing_written_is_said():
    assert pace.conclusion({"cached": []}, prompt=3) == pace.EMPTY
    assert any(t.get_text() == pace.EMPTY for t in pace.chart({"cached": []}, prompt=3).axes[0].texts)
    assert pace.conclusion({"cached": [0.5]}, prompt=3).endswith("(3 tokens of prompt).")


def test_the_rate_is_of_the_further_tokens():
    assert pace.rate([5.0, 0.1, 0.1, 7.0]) == pytest.approx(10)
    with pytest.raises(ValueError, match="second token"):
        pace.rate([1.0])


def test_a_negative_wait_is_refused():
    with pytest.raises(ValueError, match="from zero up"):
        pace.chart({"cached": [-1.0]}, prompt=1)


def test_the_same_waits_give_the_same_picture():
    assert png(pace.chart({"cached": STEADY}, 64)) == png(pace.chart({"cached": STEADY}, 64))
