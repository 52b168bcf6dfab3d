"""The score memory calculator's picture and sentence follow from the formula."""

from __future__ import annotations

import pytest

from labllm.models.score_memory import BATCHES, LENGTHS, score_memory, weigh
from labllm.models.shapes import SHAPES
from labllm.ui import Panel, self_check


def test_every_control_changes_the_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Panel, "made", [])
    panel = score_memory()
    assert "1 x 32 heads x 8k x 8k scores take 4.29 GB" in panel.picture.sentence
    self_check()
    assert not panel.errors


def test_twice_as_long_is_four_times_the_scores() -> None:
    assert "take 4.29 GB" in weigh("Llama-3.1-8B", "H200", 8192, 1).sentence
    assert "take 17.2 GB" in weigh("Llama-3.1-8B", "H200", 16384, 1).sentence


def test_says_what_does_not_fit() -> None:
    assert "less than the 151 GB of H200" in weigh("Llama-3.1-8B", "H200", 8192, 1).sentence
    assert "more than the 151 GB of H200" in weigh("Llama-3.1-8B", "H200", 65536, 1).sentence


@pytest.mark.parametrize("model", SHAPES)
def test_extremes_are_drawn(model: str) -> None:
    for length, batch in ((LENGTHS[0], BATCHES[0]), (LENGTHS[-1], BATCHES[-1])):
        weigh(model, "T4", length, batch)
