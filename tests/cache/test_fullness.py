"""The fullness panel draws what the allocators' ladder replays."""

from __future__ import annotations

import pytest

from labllm.cache.fullness import batch, fullness, waited
from labllm.cache.ladder import Line
from labllm.ui import Panel, self_check

LINE = Line(64, "lognormal", 256, 1024, 16)


def test_only_steps_in_which_somebody_waits_are_kept():
    run = waited(LINE, "paged")
    assert run and all(moment.waiting for moment in run)
    assert batch(run) > batch(waited(LINE, "max length"))
    with pytest.raises(KeyError, match="oracle"):
        waited(LINE, "none")


def test_every_control_moves_the_picture(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Panel, "made", [])
    panel = fullness(max_len=1024, slots=2048)
    self_check()
    assert not panel.errors
    assert "Slots that hold a token, mean of the second half: paged" in panel.picture.sentence
    assert "tokens read again" in panel.table.value
