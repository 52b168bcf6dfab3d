"""The turn ladder: both rungs know the whole conversation, and one that forgets it is caught."""

from __future__ import annotations

import dataclasses

import pytest

from labllm.bench import Rung, measure
from labllm.models import turns
from labllm.models.load import from_config
from labllm.models.pico.shape import PICO
from labllm.models.session import Session


@pytest.fixture
def ladder(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(turns, "kept_pico", lambda device, dtype: from_config(PICO, device, seed=2).to(dtype))
    return turns.TURNS


def test_both_rungs_answer_alike(ladder):
    records = list(measure(ladder, turns.Turn(64, 4), device="cpu"))
    assert [r.status for r in records] == ["ok", "ok"], [r.reason for r in records]
    again, kept = records
    assert again.moved.flops > 10 * kept.moved.flops
    assert kept.moved == kept.compulsory


def test_a_rung_that_forgets_the_history_is_caught(ladder):
    def forgets(said):
        return Session(said.model, 64).read(said.turn)[None]

    lying = dataclasses.replace(ladder, rungs=(Rung("forgets", forgets),))
    assert next(measure(lying, turns.Turn(64, 4), device="cpu")).status == "wrong"
