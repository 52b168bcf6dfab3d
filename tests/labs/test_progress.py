"""Progress is kept whole, loses nothing, and never gets in the way."""

from __future__ import annotations

import csv
import io
import json

import pytest
from typer.testing import CliRunner

from labllm.cli import app
from labllm.labs import check, hint, progress, solution, store
from labllm.labs.registry import get, names, solution_function
from labllm.labs.result import State


def right(name: str):
    return check(name, solution_function(name))


def wrong(name: str):
    return check(name, get(name).mistakes[0].fn)


def stub(name: str):
    def untouched(*args):
        raise NotImplementedError

    return check(name, untouched)


def entry(name: str) -> progress.Entry:
    return progress.entry(get(name))[0]


def test_it_goes_from_not_attempted_over_wrong_to_passed(home):
    stub("kv_bytes")
    assert (entry("kv_bytes").state, entry("kv_bytes").attempts) == ("NOT ATTEMPTED", 0)
    wrong("kv_bytes")
    stub("kv_bytes")
    assert (entry("kv_bytes").state, entry("kv_bytes").attempts) == ("WRONG", 1)
    right("kv_bytes")
    assert (entry("kv_bytes").state, entry("kv_bytes").attempts) == ("PASSED", 2)
    assert "torch" in entry("kv_bytes").versions and entry("kv_bytes").time


def test_what_has_passed_stays_passed(home):
    right("kv_bytes")
    wrong("kv_bytes")
    stub("kv_bytes")
    assert (entry("kv_bytes").state, entry("kv_bytes").attempts) == ("PASSED", 2)


def test_help_after_passing_does_not_count(home):
    hint("kv_bytes")
    right("kv_bytes")
    before = entry("kv_bytes")
    assert all(text in str(hint("kv_bytes")) for text in get("kv_bytes").hints)
    solution("kv_bytes")
    assert entry("kv_bytes") == before and (before.hints_used, before.solution_opened) == (1, False)


def test_what_was_never_attempted_has_no_date(home):
    stub("kv_bytes")
    hint("kv_bytes")
    assert (entry("kv_bytes").hints_used, entry("kv_bytes").time, entry("kv_bytes").versions) == (1, "", "")
    wrong("kv_bytes")
    assert entry("kv_bytes").time


def test_the_untouched_notebook_changes_nothing(home, monkeypatch):
    wrong("kv_bytes")
    before = entry("kv_bytes")
    monkeypatch.setattr(progress, "now", lambda: "later")
    stub("kv_bytes")
    assert entry("kv_bytes") == before


def test_a_broken_file_is_kept_aside_with_a_sentence_and_the_others_are_unharmed(home):
    right("kv_bytes")
    right("linear_cost")
    file = home / "progress" / "kv_bytes.json"
    for number, text in enumerate(("{not json", "[1]", "\udcff"), start=1):
        file.write_bytes(text.encode("utf-8", "surrogateescape"))
        result = right("kv_bytes")
        assert result.passed and f"kv_bytes.json.broken-{number}" in result.notes[0]
        assert file.with_name(f"kv_bytes.json.broken-{number}").exists()
    assert (entry("kv_bytes").attempts, entry("linear_cost").state) == (1, "PASSED")


def test_fields_of_another_type_or_version_are_ignored(home):
    right("kv_bytes")
    file = home / "progress" / "kv_bytes.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"attempts": "many", "mood": "good", "exercise": "x"}))
    assert (entry("kv_bytes").attempts, entry("kv_bytes").exercise, entry("kv_bytes").state) == (
        0,
        "kv_bytes",
        "PASSED",
    )


def test_a_folder_that_cannot_be_used_spoils_no_check(tmp_path, monkeypatch):
    file = tmp_path / "a file"
    file.write_text("")
    monkeypatch.setenv("LABLLM_HOME", str(file))
    result = right("kv_bytes")
    assert result.state is State.PASSED and any("progress" in note for note in result.notes)
    assert "progress" in str(hint("kv_bytes"))


def test_a_write_that_fails_leaves_the_old_file_and_no_litter(tmp_path, monkeypatch):
    path = tmp_path / "entry.json"
    store.write(path, {"a": 1})

    def full(*args):
        raise OSError("no space left")

    monkeypatch.setattr(store.os, "replace", full)
    with pytest.raises(OSError, match="no space"):
        store.write(path, {"a": 2})
    assert store.read(path) == ({"a": 1}, "")
    assert [p.name for p in tmp_path.iterdir()] == ["entry.json"]


def test_the_command_shows_every_exercise(home):
    right("kv_bytes")
    result = CliRunner().invoke(app, ["progress"])
    assert result.exit_code == 0
    assert all(name in result.stdout for name in names())
    assert "PASSED" in result.stdout and "NOT ATTEMPTED" in result.stdout


def test_the_command_writes_csv(home):
    wrong("kv_bytes")
    hint("kv_bytes")
    rows = list(csv.DictReader(io.StringIO(CliRunner().invoke(app, ["progress", "--csv"]).stdout)))
    assert [row["exercise"] for row in rows] == [e.exercise for e in progress.entries()[0]]
    row = next(row for row in rows if row["exercise"] == "kv_bytes")
    assert (row["lab"], row["state"], row["hints_used"], row["solution_opened"]) == ("02", "WRONG", "1", "False")
