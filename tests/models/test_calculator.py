"""The calculator's picture and sentence follow from the formula."""

from __future__ import annotations

import pytest

from labllm.models.calculator import CACHES, CONTEXTS, GPUS, calculator, weigh
from labllm.models.shapes import SHAPES
from labllm.ui import Panel, self_check


def test_every_control_changes_the_picture(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Panel, "made", [])
    panel = calculator()
    assert "room for 57: 32 fit" in panel.picture.sentence
    self_check()
    assert not panel.errors


def test_grouped_heads_make_room():
    asked = ("A100 80GB", "16 bits", 8192, 16)
    assert "room for 14: 16 do not fit" in weigh("Llama-2-7B", *asked).sentence
    assert "room for 57: 16 fit" in weigh("Llama-3.1-8B", *asked).sentence


@pytest.mark.parametrize("model", SHAPES)
@pytest.mark.parametrize("gpu", ["T4", "H200"])
def test_extremes_are_drawn(model: str, gpu: str):
    assert set(CACHES) and gpu in GPUS
    for context in (CONTEXTS[0], CONTEXTS[-1]):
        weigh(model, gpu, "8 bits", context, 512)
