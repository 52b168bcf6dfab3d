"""Recorded curves: one machine at one setting, the same whatever was measured here, and words where there are none."""

from __future__ import annotations

import pytest

from labllm.ui import away

HERE, AWAY = "Test CPU, 2 cores", "NVIDIA H200"


def test_only_the_records_of_that_machine_and_setting_are_taken(toy, record, records) -> None:
    theirs = [record("sum", size, 1e-7, host=AWAY) for size in (16, 64)]
    other = record("sum", 16, 1e-7, host=AWAY, rows=4)
    assert away.at(toy, "size", AWAY, [*records, *theirs, other], rows=2, dtype="float32") == theirs


def test_figures_come_from_exactly_that_setting_or_from_none(toy, record) -> None:
    theirs = [record("sum", size, 1e-7, host=AWAY) for size in (16, 64)]
    assert away.at(toy, "size", AWAY, theirs, rows=4, dtype="float32") == []
    assert "sum takes" in away.recorded(toy, "size", records=theirs, rows=4, dtype="float32").sentence  # the nearest
    with pytest.raises(ValueError, match="no field 'row'"):
        away.at(toy, "size", AWAY, theirs, row=2)


def test_the_picture_is_recorded_whatever_this_machine_is(toy, record, monkeypatch) -> None:
    theirs = [record(rung, 64, 1e-7, host=AWAY) for rung in ("loop", "sum")]
    options = {"records": theirs, "rows": 2, "dtype": "float32"}
    first = away.recorded(toy, "size", **options)
    monkeypatch.setattr("labllm.ui.series.here_name", lambda device=None: AWAY)
    assert away.recorded(toy, "size", **options) == first
    assert "on H200" in first.sentence and "loop" in first.sentence
    assert "loop" not in away.recorded(toy, "size", rungs=["sum"], **options).sentence


def test_no_record_is_said(toy) -> None:
    assert away.recorded(toy, "size", "rate", records=[]).sentence == (
        "No record of the ladder toy on H200 comes with this version."
    )
