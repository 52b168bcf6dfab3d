"""The walk of the online softmax ends at the softmax of the whole row, and its panel shows each step."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from labllm.attention.online import walk
from labllm.attention.online_view import ROWS, look, online
from labllm.ui import Panel, self_check


@given(st.lists(st.floats(-50, 50), min_size=1, max_size=20), st.integers(1, 7))
def test_the_end_does_not_depend_on_tiles(scores: list[float], tile: int) -> None:
    last = walk(scores, tile)[-1]
    assert last.m == max(scores) and last.last == len(scores)
    assert math.log(last.l) + last.m == pytest.approx(torch.tensor(scores).double().logsumexp(0).item())


def test_a_step_says_what_it_kept_and_added() -> None:
    first, second = walk([1.0, 3.0, 2.0, 5.0], 2)
    assert (first.m, second.m, first.peak, second.peak) == (3.0, 5.0, 3.0, 5.0)
    assert second.alpha == math.exp(-2) and second.kept == pytest.approx(first.l * second.alpha)
    assert second.added == pytest.approx(math.exp(-3) + 1)


@pytest.mark.parametrize(("scores", "tile"), [([], 2), ([1.0], 0)])
def test_refuses(scores: list[float], tile: int) -> None:
    with pytest.raises(ValueError, match="at least one"):
        walk(scores, tile)


def test_every_control_of_the_panel_changes_the_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Panel, "made", [])
    panel = online()
    assert "After 8 of 16 scores the newest tile raises the maximum from 1.5 to 2.6" in panel.picture.sentence
    self_check()
    assert not panel.errors


def test_the_order_of_scores_does_not_change_the_end() -> None:
    ends = [look(row, 4, 8).sentence.split("log l + m = ")[1] for row in ("rising", "falling")]
    assert ends[0] == ends[1] and set(ROWS) >= {"rising", "falling"}


def test_steps_beyond_the_end_stay_at_the_end() -> None:
    assert look("mixed", 8, 2).sentence == look("mixed", 8, 7).sentence
