"""Older code is named exactly where a timed record of it is shown, in the ladder's order."""

from __future__ import annotations

from dataclasses import replace

import pytest

from labllm import ladders
from labllm.bench import stale
from labllm.bench.recorded import shipped
from labllm.ladders import ladder, older_code
from labllm.ui.older import older


def test_rungs_of_older_code_are_named_once_in_the_order_of_the_ladder(toy, record) -> None:
    old = [record(rung, size, 1e-6, old=True) for rung in ("sum", "loop") for size in (16, 64)]
    assert older(toy, old) == "; older code: loop, sum"


def test_nothing_is_said_of_code_as_it_is_nor_of_what_was_not_timed(toy, record) -> None:
    now = [record("sum", 16, 1e-6), record("loop", 16, status="failed", reason="no memory", old=True)]
    assert older(toy, now) == "" == older_code([])


def test_names_stand_behind_their_ladder_where_there_are_several(toy, record, monkeypatch: pytest.MonkeyPatch) -> None:
    known = {"toy": toy, "other": replace(toy, name="other")}
    monkeypatch.setattr(ladders, "LADDERS", known)
    monkeypatch.setattr(ladders, "ladder", known.__getitem__)
    old = record("sum", 16, 1e-6, old=True)
    assert older_code([old]) == " Older code: sum."
    both = [old, record("loop", 16, 1e-6).model_copy(update={"ladder": "other"}), record("loop", 16, 1e-6)]
    assert older_code(both) == " Older code: toy: sum."
    both.append(old.model_copy(update={"ladder": "other"}))
    assert older_code(both) == " Older code: toy: sum; other: sum."


def test_of_an_unknown_ladder_nothing_is_said(record) -> None:
    assert older_code([record("sum", 16, 1e-6, old=True)]) == ""


def test_shipped_records_are_judged_as_the_store_judges_them() -> None:
    for name in ("bandwidth", "layer-parts"):
        timed = [r for r in shipped(name) if r.seconds]
        assert bool(older_code(timed)) is bool(stale(timed, [ladder(name)]))
