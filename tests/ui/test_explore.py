"""explore(ladder): recorded curves before Run, live points after it, and words for everything else."""

from __future__ import annotations

import pytest

from labllm.bench import load, save
from labllm.hardware import this_machine
from labllm.ui import explore, sizes
from labllm.ui.curves import EMPTY

SOON = 60
AWAY = "NVIDIA H200"


def test_without_records_it_says_so_and_starts_nothing(toy) -> None:
    panel = explore(toy, "size")
    assert EMPTY in panel.sentence.value and panel.table.value == ""
    assert not panel.busy and panel.job.done == 0 and not panel.errors
    assert load("toy") == []


def test_fields_become_controls_and_fixed_ones_do_not(toy) -> None:
    assert list(explore(toy, "size").controls) == ["rows", "dtype", "quantity", "rungs", "machines"]
    panel = explore(toy, "size", fixed={"dtype": "float16"})
    assert "dtype" not in panel.controls
    assert [v for _, v in panel.controls["rows"].options] == [1, 2, 4]


def test_controls_start_where_they_are_told_to(toy) -> None:
    panel = explore(toy, "size", start={"rows": 4})
    assert panel.controls["rows"].value == 4 != explore(toy, "size").controls["rows"].value


def test_recorded_machines_are_shown_before_anything_ran(toy, record) -> None:
    panel = explore(toy, "size", records=[record("sum", size, 1e-7, host=AWAY) for size in (16, 64)])
    assert "on H200" in panel.sentence.value and "Nothing is measured on this machine" in panel.sentence.value
    assert "H200" in panel.table.value
    shown = panel.image.value
    panel.controls["machines"].value = ("this machine",)
    assert panel.image.value != shown and EMPTY in panel.sentence.value


def test_the_nearest_recorded_setting_is_named(toy, record) -> None:
    panel = explore(toy, "size", records=[record("sum", size, 1e-7, host=AWAY, rows=1) for size in (16, 64)])
    assert "on H200 (recorded at rows 1)" in panel.sentence.value
    panel.controls["rows"].value = 1
    assert "on H200." in panel.sentence.value


def test_run_measures_draws_lists_and_saves(toy) -> None:
    panel = explore(toy, "size")
    before = panel.image.value
    panel.run_button.click()
    assert panel.wait(SOON) and not panel.errors
    assert panel.image.value != before and "on this machine" in panel.sentence.value
    assert panel.table.value.count("<tr>") == 1 + 2 * 4
    kept = load("toy")
    assert {(r.rung, r.workload["size"]) for r in kept} == {
        (n, s) for n in ("loop", "sum") for s in (16, 64, 256, 1024)
    }
    assert all(r.status == "ok" and r.workload["rows"] == 2 for r in kept)


def test_what_was_measured_is_there_in_the_next_session(toy) -> None:
    first = explore(toy, "size")
    first.run()
    assert first.wait(SOON)
    assert explore(toy, "size").table.value == first.table.value


def test_only_ticked_rungs_are_measured_and_none_is_an_error(toy) -> None:
    panel = explore(toy, "size", rungs=["sum"])
    panel.run()
    assert panel.wait(SOON)
    assert {r.rung for r in load("toy")} == {"sum"}
    panel.controls["rungs"].value = ()
    panel.run()
    assert panel.wait(SOON)
    assert "no rung is ticked" in panel.error.value


def test_a_rung_that_fails_is_shown_in_words_and_the_others_go_on(failing) -> None:
    panel = explore(failing, "size")
    panel.run()
    assert panel.wait(SOON)
    assert "broken failed" in panel.error.value and "RuntimeError: this rung always fails" in panel.error.value
    assert "failed: RuntimeError" in panel.table.value
    assert not panel.errors, "a failing rung is a result, not an error of the panel"
    assert {r.rung for r in load("toy") if r.status == "ok"} == {"loop", "sum"}


def test_stop_keeps_what_is_measured(ladder_of, toy) -> None:
    def halting(x):
        panel.stop()
        return toy["sum"].run(x)

    stopping = ladder_of(toy["loop"], toy["sum"].__class__("halting", halting))
    panel = explore(stopping, "size")
    kept = load("toy")
    panel.run()
    assert panel.wait(SOON)
    assert "stopped" in panel.status.value and not kept
    assert len({r.workload["size"] for r in load("toy")}) <= 1


def test_speed_up_is_against_the_baseline_even_where_it_is_not_ticked(toy, record) -> None:
    here = this_machine().name
    records = [record(rung, size, s, host=here) for rung, s in (("loop", 4e-6), ("sum", 1e-6)) for size in (16, 64)]
    panel = explore(toy, "size", "speedup", rungs=["sum"], records=records)
    assert (
        "sum is 4x as fast as loop with a size of 16 numbers and 4x with 64 numbers on this machine."
        in panel.sentence.value
    )
    assert "loop" not in panel.table.value


def test_the_roofline_is_a_view_of_the_same_records(toy, record) -> None:
    away = [record(rung, size, s, host=AWAY) for rung, s in (("loop", 4e-6), ("sum", 1e-6)) for size in (16, 64)]
    panel = explore(toy, "size", "roofline", records=away)
    assert not panel.errors
    assert "bound by memory bandwidth on H200" in panel.sentence.value
    assert "loop moves 8x the bytes" in panel.sentence.value
    shown = panel.image.value
    panel.controls["machines"].value = ("this machine",)
    assert panel.image.value != shown and "press Run" in panel.sentence.value


def test_unknown_names_are_refused_in_one_sentence(toy) -> None:
    for options, message in (
        ({"x": "context"}, "its fields are size, rows, dtype"),
        ({"x": "size", "fixed": {"batch": 1}}, "has no field 'batch'"),
        ({"x": "size", "start": {"batch": 1}}, "has no field 'batch'"),
        ({"x": "size", "rungs": ["flash"]}, "cannot be ticked"),
        ({"x": "size", "machines": ["T4"]}, "cannot be ticked"),
        ({"x": "size", "y": "joy"}, "must be one of"),
        ({"x": "size", "size": "huge"}, "size must be 'fast', 'small' or 'full'"),
        ({"x": "size", "baseline": "none"}, "no rung 'none'"),
    ):
        with pytest.raises((ValueError, KeyError), match=message):
            explore(toy, **options)


def test_a_broken_record_file_is_a_warning_and_the_rest_is_shown(toy, record, home) -> None:
    save([record("sum", 64, 1e-7, host=AWAY)])
    (home / "records" / "toy.broken.json").write_text("{")
    with pytest.warns(UserWarning, match=r"toy\.broken\.json"):
        panel = explore(toy, "size")
    assert "H200" in panel.sentence.value


class TestSizes:
    def test_dear_rungs_are_left_out_where_they_are_dear(self, toy) -> None:
        limit = sizes.Budget(flops=2000, bytes=1e9, memory=1e9)
        steps = sizes.plan(toy, toy.workload(), "size", limit)
        assert [(w.size, rungs) for w, rungs in steps] == [
            (16, ("loop", "sum")), (64, ("loop", "sum")), (256, ("sum",)),
        ]  # fmt: skip
        assert len(sizes.plan(toy, toy.workload(), "size", limit, smallest=True)) == 1
        assert sizes.left_out(toy, steps, "size") == "left out as too much for a lab: loop at size 256"

    def test_what_is_left_out_is_said_when_the_run_ends(self, toy, monkeypatch) -> None:
        monkeypatch.setattr(sizes, "FAST", sizes.Budget(flops=2000, bytes=1e9, memory=1e9))
        panel = explore(toy, "size")
        panel.run()
        assert panel.wait(SOON)
        assert "finished: 5 results; left out as too much for a lab: loop at size 256" in panel.status.value

    def test_memory_is_bounded_too(self, toy) -> None:
        assert not sizes.affordable(
            toy, toy["sum"].__class__("x", len, memory=lambda w: 2.0), toy.workload(), sizes.Budget(1e9, 1e9, 1.0)
        )

    def test_the_fast_setting_is_the_smallest(self, monkeypatch) -> None:
        assert sizes.budget("cpu") == sizes.FAST
        monkeypatch.setenv("LABLLM_FAST", "0")
        assert sizes.budget("cpu").flops > sizes.FAST.flops
        assert sizes.budget("cuda").memory <= 4e9
