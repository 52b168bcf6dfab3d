"""The reservations panel draws what the replay found, under every rule."""

from __future__ import annotations

import pytest

from labllm.cache.reservations import over, reservations
from labllm.ui import Panel, self_check


@pytest.fixture(autouse=True)
def no_panels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Panel, "made", [])


def test_every_control_changes_the_picture_and_no_error_is_kept():
    panel = reservations(max_model_len=512, rows=8)
    assert "8 sequences run, and the next waits for 512 slots" in panel.picture.sentence
    self_check()
    assert not panel.errors
    panel.controls["rule"].value = "true length"
    assert "0 % never used" in panel.picture.sentence and "true length" in panel.table.value


def test_shares_over_a_field_are_drawn_with_their_sentence():
    picture = over("max_model_len", "average", (64, 256), max_model_len=512, rows=4)
    assert "never used" in picture.sentence and "average length of 64 to 256" in picture.sentence


@pytest.mark.parametrize(("rule", "field"), [("guess", "average"), ("true length", "rows")])
def test_refuses(rule: str, field: str):
    with pytest.raises(ValueError, match="rule is one of"):
        over(rule, field, (64, 256))
