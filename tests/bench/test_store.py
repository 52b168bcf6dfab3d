"""Records survive a round trip; a broken file is named and hides nothing else; older code is found."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import toy

from labllm.bench import BrokenRecord, load, measure, save, stale
from labllm.bench.store import read


@pytest.fixture
def record():
    (record,) = measure(toy.ladder(toy.HONEST), toy.Double(64), device="cpu")
    return record


def test_a_record_survives_a_round_trip(record, tmp_path: Path) -> None:
    (path,) = save([record], tmp_path)
    assert path.name.startswith("toy.") and path.suffix == ".json"
    assert read(path) == [record] == load("toy", [tmp_path])


def test_a_newer_record_replaces_the_older_and_keeps_the_others(record, tmp_path: Path) -> None:
    other = record.model_copy(update={"rung": "other"})
    save([record, other], tmp_path)
    newer = record.model_copy(update={"date": "2099-01-01"})
    save([newer], tmp_path)
    assert {r.rung: r.date for r in load("toy", [tmp_path])} == {"honest": "2099-01-01", "other": record.date}


def test_a_failed_run_does_not_replace_a_timed_one_of_the_same_code(record, tmp_path: Path) -> None:
    lost = record.model_copy(update={"time": None, "status": "out of memory"})
    save([record], tmp_path)
    save([lost], tmp_path)
    assert load("toy", [tmp_path]) == [record]
    save([lost.model_copy(update={"source": "0" * 12})], tmp_path)
    assert [r.status for r in load("toy", [tmp_path])] == ["out of memory"]


def test_a_learners_record_overlays_the_shipped_one(record, tmp_path: Path, home: Path) -> None:
    save([record], tmp_path)
    save([record.model_copy(update={"date": "2099-01-01"})])
    assert [r.date for r in load("toy", [tmp_path, home / "records"])] == ["2099-01-01"]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{ not json", "not a readable JSON"),
        ('{"schema_version": 99, "records": []}', "schema 99 .* upgrade labllm"),
        ('{"schema_version": 1, "records": [{"ladder": "toy"}]}', "does not fit schema 1: records.0.rung"),
        ("[1, 2]", "does not fit schema 1"),
    ],
)
def test_a_broken_file_is_named_and_the_others_still_load(record, tmp_path: Path, text: str, complaint: str) -> None:
    save([record], tmp_path)
    broken = tmp_path / "toy.broken.json"
    broken.write_text(text)
    with pytest.raises(BrokenRecord, match=complaint):
        read(broken)
    with pytest.warns(UserWarning, match="toy.broken.json"):
        assert load("toy", [tmp_path]) == [record]


def test_saving_never_leaves_half_a_file(record, tmp_path: Path) -> None:
    save([record], tmp_path)
    assert [p.suffix for p in tmp_path.iterdir()] == [".json"]
    json.loads(next(tmp_path.iterdir()).read_text())


def test_older_code_is_found(record) -> None:
    ladder = toy.ladder(toy.HONEST)
    assert stale([record], [ladder]) == []
    assert stale([record.model_copy(update={"source": "0" * 12})], [ladder]) != []
    assert stale([record], [ladder.only()]) != [], "a rung that is gone is older code"
    assert stale([record], [dataclasses.replace(ladder, name="elsewhere")]) == []
