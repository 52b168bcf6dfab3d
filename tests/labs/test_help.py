"""Hints, solutions, guesses and the rung `yours`."""

from __future__ import annotations

import textwrap

import pytest
import torch

from labllm.attention.ladder import DECODE, PREFILL
from labllm.bench import measure
from labllm.labs import check, hint, passed, predict, progress, reflect, solution, yours
from labllm.labs.registry import get, solution_function

pytestmark = pytest.mark.usefixtures("home")


@pytest.fixture(autouse=True)
def nothing_passed(monkeypatch):
    monkeypatch.setattr(passed, "_functions", {})


def test_hints_climb_one_a_call_and_the_last_points_to_the_solution():
    hints = get("kv_append").hints
    for count in range(1, len(hints) + 1):
        text = str(hint("kv_append"))
        assert [h in text for h in hints] == [i < count for i in range(len(hints))]
    assert 'solution("kv_append")' in text
    assert str(hint("kv_append")) == text
    assert progress.entry(get("kv_append"))[0].hints_used == len(hints)


def test_the_solution_is_shown_as_source_and_noted():
    assert not progress.entry(get("causal_mask"))[0].solution_opened
    card = solution("causal_mask")
    assert "def causal_mask(num_queries: int, num_keys: int)" in str(card) and "<pre" in card._repr_html_()
    assert progress.entry(get("causal_mask"))[0].solution_opened


def test_a_faster_way_stands_below_the_solution_and_passes_too():
    text = str(solution("kv_append"))
    plain, quick = text.split("# faster, and not asked for: an indexed write")
    for code in (plain.partition("\n")[2], quick):
        scope = {"torch": torch}
        exec(textwrap.dedent(code), scope)
        assert check("kv_append", scope["kv_append"]).passed
    assert "faster" not in str(solution("kv_bytes"))


@pytest.mark.parametrize("ask", [hint, solution, yours])
def test_an_unknown_exercise_is_one_sentence(ask):
    with pytest.raises(ValueError, match="did you mean 'kv_append'"):
        ask("kv_apend")


def test_a_guess_outlives_the_cell_and_stands_beside_the_measurement():
    predict("decode_ms", 3, "ms")
    predict("decode_ms", None, "ms")
    text = str(reflect("decode_ms", 12.0))
    assert "3 ms" in text and "12 ms" in text and "below the measurement by a factor of 4.0" in text
    predict("decode_ms", 30.0, "ms")
    assert "above the measurement by a factor of 2.5" in str(reflect("decode_ms", 12.0))
    predict("decode_ms", 12.5, "ms")
    assert "within a quarter" in str(reflect("decode_ms", 12.0))


def test_what_was_computed_is_not_called_measured():
    assert "by formula: 12" in str(reflect("share", 12.0, "by formula"))
    predict("share", 24.0, "%")
    text = str(reflect("share", 12.0, "by formula"))
    assert "by formula: 12 %" in text and "above the formula's result by a factor of 2.0" in text
    assert "measure" not in text
    with pytest.raises(ValueError, match="measured, by formula, simulated, not 'guessed'"):
        reflect("share", 12.0, "guessed")


def test_reflecting_without_a_guess_says_how_to_make_one():
    assert 'predict("never", ...)' in str(reflect("never", 1.0))


def test_reflecting_without_a_guess_knows_the_unit_that_was_asked_for():
    predict("decode_ms", None, "ms")
    text = str(reflect("decode_ms", 12.0))
    assert "measured: 12 ms" in text and 'predict("decode_ms", ...)' in text


def test_a_folder_that_cannot_be_used_spoils_no_prediction(tmp_path, monkeypatch):
    (tmp_path / "a file").write_text("")
    monkeypatch.setenv("LABLLM_HOME", str(tmp_path / "a file"))
    assert "in place of None" in str(predict("decode_ms", None, "ms"))
    assert "measured: 12" in str(reflect("decode_ms", 12.0))


@pytest.mark.parametrize("value", ["many", float("nan"), float("inf"), [1]])
def test_a_guess_is_one_finite_number(value):
    with pytest.raises(ValueError, match="one finite number"):
        predict("decode_ms", value, "ms")


def test_a_guess_has_a_plain_name():
    with pytest.raises(ValueError, match="one word"):
        predict("../escape", 1, "ms")


@pytest.mark.parametrize(("name", "ladder"), [("kv_append", DECODE), ("causal_mask", PREFILL)])
def test_a_passed_function_joins_the_ladder_and_answers_rightly(name, ladder):
    assert yours(name) == ()
    check(name, get(name).mistakes[0].fn)
    assert yours(name) == ()
    check(name, solution_function(name))
    mine = ladder.extended(*yours(name)).only("yours")
    for workload in ladder.sizes["fast"]:
        (record,) = measure(mine, workload, device="cpu")
        assert (record.rung, record.status) == ("yours", "ok"), record.reason


@pytest.mark.parametrize(("name", "ladder"), [("kv_append", DECODE), ("causal_mask", PREFILL)])
def test_a_rung_made_of_a_mistake_is_caught_by_the_harness(name, ladder):
    rung = get(name).as_rung(get(name).mistakes[2].fn)
    (record,) = measure(ladder.extended(rung).only("yours"), ladder.sizes["fast"][0], device="cpu")
    assert record.status in ("wrong", "failed")


def test_an_exercise_without_a_place_on_a_ladder_says_so():
    with pytest.raises(ValueError, match="no place on a ladder"):
        yours("kv_bytes")
