"""The picture of several roofs: every roof and mark is drawn and named, and the sentence takes the right side."""

from __future__ import annotations

import pytest

from labllm import ui
from labllm.bench import Roof
from labllm.ui import roofs
from labllm.ui.roofs import Mark

BIG, SMALL = (
    Roof("NVIDIA H200", "datasheet", 4.8e12, {"float16": 989e12}),
    Roof("T4", "datasheet", 320e9, {"float16": 65e12}),
)
MARKS = [Mark("qkv", 1, 3e12, "decode"), Mark("down", 1.1, 4e12, "decode"), Mark("qkv", 900, 6e14, "prefill")]


def texts(figure) -> str:
    return " ".join(t.get_text() for ax in figure.axes for t in ax.texts)


def test_every_roof_and_mark_is_named() -> None:
    said = texts(roofs.chart([BIG, SMALL], MARKS))
    assert "H200 (datasheet)" in said and "T4 (datasheet)" in said and said.count("qkv") == 2 and "down" in said


def test_a_roof_says_where_its_ridge_lies_and_for_which_numbers() -> None:
    assert "H200 (datasheet)\nridge 206 FLOP/B, float16" in texts(roofs.chart([BIG, SMALL]))
    assert "the float16 ridge of H200" in roofs.conclusion([BIG], MARKS)


def test_families_are_told_apart_by_marker() -> None:
    (ax,) = roofs.chart([BIG], MARKS).axes
    drawn = {line.get_label(): (line.get_marker(), len(line.get_xdata())) for line in ax.lines}
    assert drawn["decode"][1] == 2 and drawn["prefill"][1] == 1 and drawn["decode"][0] != drawn["prefill"][0]


def test_the_sentence_says_which_limit_each_meets() -> None:
    text = roofs.conclusion([BIG], MARKS)
    assert "206 FLOP/B" in text
    assert "memory is the limit of all parts (decode)" in text and "arithmetic is the limit of qkv (prefill)" in text


def test_without_marks_the_sentence_lists_the_ridges() -> None:
    assert "206 FLOP/B on H200 (datasheet) and 203 FLOP/B on T4 (datasheet)" in roofs.conclusion([BIG, SMALL])


def test_a_roof_without_the_dtype_is_left_out() -> None:
    other = Roof("old", "datasheet", 1e11, {"float32": 1e12})
    assert "old" not in texts(roofs.chart([BIG, other], MARKS))
    with pytest.raises(ValueError, match="no roof knows a rate for float16"):
        roofs.chart([other], MARKS)


def test_the_same_marks_give_the_same_picture() -> None:
    assert (
        ui.draw(roofs, [BIG], MARKS).data == ui.draw(roofs, [BIG], MARKS).data != ui.draw(roofs, [BIG], MARKS[:1]).data
    )
