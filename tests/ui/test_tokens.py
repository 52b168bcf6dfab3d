"""Tokens are drawn with what cannot be seen made visible, and never let text become markup."""

from __future__ import annotations

import pytest

from labllm.ui.tokens import PART, Piece, tokens, visible


def test_spaces_and_line_ends_are_seen():
    assert visible("\n    if\t") == "↵····if→"
    assert visible("") == PART
    assert str(tokens(["def", " f", ""])) == f"def|·f|{PART}"


def test_a_box_says_the_probability_and_a_line_end_ends_the_line():
    drawn = tokens([Piece("x", 0.97, "else: y"), Piece("\n", 0.004)]).html
    assert ">97<" in drawn and "&lt;1" in drawn and 'title="else: y"' in drawn
    assert drawn.count("<br>") == 2 + 1
    assert tokens(["x"]).html.count("<br>") == 0


def test_text_is_not_markup():
    drawn = tokens([Piece("<b>", 0.5, '"quoted" <i>')]).html
    assert "<b>" not in drawn and "<i>" not in drawn and "&lt;b&gt;" in drawn


@pytest.mark.parametrize("probability", [-0.1, 1.5])
def test_what_is_no_probability_is_refused(probability: float):
    with pytest.raises(ValueError, match="between 0 and 1"):
        tokens([Piece("x", probability)])


def test_a_cell_can_end_in_it():
    bundle = tokens(["x"])._repr_mimebundle_()
    assert set(bundle) == {"text/html", "text/plain"} and bundle["text/plain"] == "x"
