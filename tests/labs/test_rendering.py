"""Results read the same as text and as HTML, in light and dark: states are words, text keeps the notebook's colour."""

from __future__ import annotations

import re

import pytest

from labllm.labs.card import Card
from labllm.labs.result import Result, State, duration


def test_every_state_is_a_word_in_both_renderings():
    for state in State:
        result = Result("kv_bytes", state, "what happened.")
        assert str(result).startswith(f"{state.value}: kv_bytes")
        assert f"<strong>{state.value}</strong> kv_bytes" in result._repr_html_()


def test_what_a_learner_wrote_is_escaped():
    shown = Result("x", State.WRONG, "<b>", got="<script>alert(1)</script>", line="a < b")._repr_html_()
    assert "<script>" not in shown and "<b>" not in shown and "a &lt; b" in shown


def test_only_the_border_has_a_colour_of_its_own():
    shown = Card("HINT", "x", (("note", "y"),), code="z = 1", tone="info")._repr_html_()
    assert re.findall(r"#[0-9A-F]{6}", shown) == ["#56B4E9"]
    assert "color:inherit" in shown and "border-left" in shown


def test_empty_fields_are_left_out_and_speed_is_a_ratio_in_words():
    result = Result("x", State.PASSED, "fine.", seconds=2e-6, library="torch.tril", library_seconds=8e-3)
    assert str(result).splitlines()[2] == "  speed: 2 us, 4000.0 times as fast as torch.tril (8 ms)"
    assert "expected" not in str(result)


@pytest.mark.parametrize(
    ("seconds", "pace"),
    [(1.0, "as fast as"), (1.04, "as fast as"), (0.97, "as fast as"), (2.0, "2.0 times as slow as")],
)
def test_equal_speeds_need_no_factor(seconds, pace):
    result = Result("x", State.PASSED, "fine.", seconds=seconds, library="torch.tril", library_seconds=1.0)
    assert str(result).endswith(f"s, {pace} torch.tril (1 s)")


def test_durations_have_units_that_read_well():
    assert [duration(s) for s in (1.5, 0.0123, 4.56e-6)] == ["1.5 s", "12.3 ms", "4.56 us"]


def test_words_in_backticks_are_set_as_code_and_nothing_is_let_through() -> None:
    shown = Card("ERROR", "x", (("", "use `k[<b>]` there"),))._repr_html_()
    assert "use <code>k[&lt;b&gt;]</code> there" in shown
