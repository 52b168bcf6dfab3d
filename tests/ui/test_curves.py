"""Curves: what is in the records is in the artists, and what is special is said in words."""

from __future__ import annotations

import math

import pytest

from labllm.ui import curves, style
from labllm.ui.phrase import listed
from labllm.ui.series import at_setting

HERE, AWAY = "Test CPU, 2 cores", "NVIDIA H200"


def words(fig) -> str:
    return "\n".join(t.get_text() for t in [*fig.texts, *fig.axes[0].texts])


def line(fig, label: str):
    """The errorbar container of that label."""
    return next(c for c in fig.axes[0].containers if c.get_label().startswith(label))


def draw(toy, records, y="time", **options):
    return curves.chart(toy, records, "size", y, here=HERE, **options)


def test_every_time_and_its_spread_is_drawn(toy, records) -> None:
    fig = draw(toy, records)
    data, _, (bars,) = line(fig, "sum")
    assert list(data.get_xdata()) == [16, 64, 256]
    assert list(data.get_ydata()) == [2e-6, 3e-6, 4e-6]
    assert bars.get_segments()[0][:, 1] == pytest.approx([0.9 * 2e-6, 1.2 * 2e-6])
    assert fig.axes[0].get_yscale() == "log"
    assert {"loop", "sum"} <= set(words(fig).split("\n"))


def test_a_line_breaks_where_only_others_were_measured(toy, records) -> None:
    (bare, whole) = (line(draw(toy, kept), "sum")[0].get_ydata() for kept in (
        [r for r in records if (r.rung, r.workload["size"]) != ("sum", 64)], records))  # fmt: skip
    assert bare[0] == 2e-6 and math.isnan(bare[1]) and bare[2] == 4e-6
    assert not any(map(math.isnan, whole)), "all sizes measured: nothing to break"
    alone = [r for r in records if r.rung == "sum" and r.workload["size"] != 64]
    assert len(line(draw(toy, alone), "sum")[0].get_ydata()) == 2, "nobody was measured between"


def test_axes_and_ticks_carry_units_and_the_heading_the_setting(toy, records) -> None:
    fig = draw(toy, records)
    ax = fig.axes[0]
    fig.canvas.draw()
    assert ax.get_xlabel() == "size (numbers)"
    assert all(t.get_text().endswith("s") for t in ax.get_yticklabels() if t.get_text())
    assert "rows 2, float32" in words(fig)


def test_the_caption_names_machines_and_dates(toy, records, record) -> None:
    text = words(draw(toy, [*records, record("sum", 64, 1e-7, host=AWAY)]))
    assert "here: this machine (Test, 2 cores), measured 2026-11-20" in text
    assert "H200: recorded on NVIDIA H200, 2026-11-20" in text
    assert "sum · here" in text and "sum · H200" in text


def test_recorded_marks_are_hollow_and_own_marks_full(toy, records, record) -> None:
    fig = draw(toy, [*records, record("sum", 64, 1e-7, host=AWAY)])
    own, other = line(fig, "sum · here")[0], line(fig, "sum · H200")[0]
    assert own.get_color() == other.get_color() and own.get_marker() == other.get_marker()
    assert own.get_markerfacecolor() != style.PAPER and other.get_markerfacecolor() == style.PAPER


@pytest.mark.parametrize(
    ("facts", "word"),
    [({"old": True}, "older code"), ({"shared": True}, "shared GPU"), ({"method": "virtual clock"}, "virtual clock")],
)  # fmt: skip
def test_what_makes_a_record_special_is_said(toy, records, record, facts, word) -> None:
    fig = draw(toy, [*records, *(record("sum", size, 1e-7, host=AWAY, **facts) for size in (16, 64))])
    assert f"sum · H200 · {word}" in words(fig)
    assert f"2026-11-20; {word}" in words(fig)
    dashed = line(fig, "sum · H200")[0].get_linestyle() == "--"
    assert dashed == (word == "older code")


def test_a_point_that_could_not_be_measured_is_a_mark_with_its_word(toy, records, record) -> None:
    fig = draw(toy, [*records, record("loop", 1024, status="out of memory")])
    (cross,) = [a for a in fig.axes[0].lines if a.get_marker() == "x"]
    assert list(cross.get_xdata()) == [1024]
    assert "loop: out of memory" in words(fig)
    assert fig.axes[0].get_xlim()[1] > 1024


def test_a_rung_that_runs_nowhere_is_named_and_not_crossed(toy, records, record) -> None:
    why = "the GPU is too old: it needs a newer one"
    gone = [record("sum", size, status="cannot run here", reason=why) for size in (16, 64)]
    fig = draw(toy, [r for r in records if r.rung == "loop"] + gone)
    assert "this machine cannot run sum: the GPU is too old\n" in words(fig)
    assert not [a for a in fig.axes[0].lines if a.get_marker() == "x"]


def test_a_rung_that_runs_elsewhere_on_the_field_does_not_take_the_rest(toy, records, record) -> None:
    text = words(draw(toy, [*records, record("sum", 1024, status="cannot run here", reason="it takes few numbers")]))
    assert "sum: does not take these" in text and "cannot run" not in text


def test_an_interpreted_kernel_is_checked_and_not_timed(toy, records, record) -> None:
    ran = record("sum", 1024, method="Triton's interpreter: checked, never timed")
    assert "sum: checked, not timed" in words(draw(toy, [*records, ran]))


def test_speed_up_starts_at_zero_and_is_against_the_first_rung(toy, records) -> None:
    fig = draw(toy, records, "speedup")
    assert fig.axes[0].get_ylim()[0] == 0
    assert list(line(fig, "sum")[0].get_ydata()) == pytest.approx([0.5, 4 / 3, 4.0])
    assert fig.axes[0].get_ylabel() == "speed-up (1x = loop)"


@pytest.mark.parametrize(("y", "value"), [("bandwidth", 4 * 2 * 65 / 3e-6), ("rate", 128 / 3e-6)])
def test_rates_are_of_the_compulsory_work(toy, records, y, value) -> None:
    assert line(draw(toy, records, y), "sum")[0].get_ydata()[1] == pytest.approx(value)


def test_the_limit_of_the_roof_is_drawn_and_named(toy, record) -> None:
    fig = draw(toy, [record("sum", size, 1e-6, of_ceiling=0.5) for size in (16, 64)])
    (dotted,) = [a for a in fig.axes[0].lines if a.get_linestyle() == ":"]
    assert list(dotted.get_ydata()) == pytest.approx([0.5e-6] * 2)
    assert "limit (measured)" in words(fig)
    both = [record(rung, 64, s, of_ceiling=c) for rung, s, c in (("loop", 2e-6, 0.25), ("sum", 1e-6, 0.5))]
    assert curves.conclusion(toy, both, "size", here=HERE).endswith("sum reaches 50 % of the measured limit.")


def test_metrics_can_be_drawn(toy, records, record) -> None:
    with_metric = record("sum", 64, 1e-6, metrics={"waste": {"value": 0.25, "unit": "B"}})
    assert line(draw(toy, [with_metric], "waste"), "sum")[0].get_ydata() == pytest.approx([0.25])
    assert curves.conclusion(toy, [], "size", "joy") == curves.EMPTY
    with pytest.raises(ValueError, match="no record has a metric 'joy'"):
        draw(toy, records, "joy")


def test_mixed_settings_and_unknown_fields_are_refused(toy, records, record) -> None:
    with pytest.raises(ValueError, match="mix settings of rows"):
        draw(toy, [*records, record("sum", 64, 1e-6, rows=4)])
    with pytest.raises(ValueError, match="its fields are size, rows, dtype"):
        curves.chart(toy, records, "length", here=HERE)
    with pytest.raises(ValueError, match="its rungs are loop, sum"):
        draw(toy, records, baseline="product")


def test_the_nearest_recorded_setting_is_taken_and_said(toy, records, record) -> None:
    away = [record("sum", size, 1e-7, host=AWAY, rows=rows) for size in (16, 64) for rows in (1, 4)]
    wanted = {"rows": 1, "dtype": "float16"}
    found, differs = at_setting(away, "size", wanted, AWAY)
    assert {r.workload["rows"] for r in found} == {1} and differs == {"dtype": "float32"}
    text = words(draw(toy, found, wanted=wanted))
    assert "rows 1, float16" in text and "the nearest recorded setting: float32" in text
    assert "(recorded at float32)" in curves.conclusion(toy, found, "size", here=HERE, wanted=wanted)


def test_the_sentence_names_winner_factor_and_turn(toy, records) -> None:
    text = curves.conclusion(toy, records, "size", here=HERE)
    assert text == (
        "With a size of 256 numbers on this machine, sum takes 4 µs and loop 16 µs, a factor of 4; "
        "with 16 numbers it is the other way round."
    )
    assert "sum is 4x as fast as loop" in curves.conclusion(toy, records, "size", "speedup", here=HERE)
    behind = curves.conclusion(toy, records, "size", "speedup", here=HERE, baseline="sum")
    assert "nothing is faster than sum and loop is 0.25x as fast; with 16 numbers it is the other way" in behind


def test_a_lead_of_hundredths_at_the_other_end_is_no_turn(toy, record) -> None:
    times = {("loop", 16): 1.00e-6, ("sum", 16): 1.02e-6, ("loop", 64): 4e-6, ("sum", 64): 2e-6}
    found = [record(rung, size, seconds) for (rung, size), seconds in times.items()]
    assert curves.conclusion(toy, found, "size", here=HERE).endswith("; with 16 numbers they are as good as equal.")


def test_the_sentence_takes_words_in_the_order_of_the_axis(toy, record) -> None:
    times = {("loop", "float32"): 1e-6, ("loop", "float16"): 2e-6, ("sum", "float32"): 3e-6, ("sum", "float16"): 8e-6}
    mixed = [record(rung, 64, seconds, dtype=dtype) for (rung, dtype), seconds in times.items()]
    assert "float16 on this machine, loop takes 2 µs" in curves.conclusion(toy, mixed, "dtype", here=HERE)
    alone = curves.conclusion(toy, mixed[:2], "dtype", here=HERE)
    assert alone.index("1 µs") < alone.index("2 µs")


def test_a_metric_is_named_in_the_sentence(toy, record) -> None:
    of = {rung: {"waste": {"value": waste, "unit": ""}} for rung, waste in (("loop", 0.5), ("sum", 0.25))}
    found = [record(rung, 64, 1e-6, metrics=metrics) for rung, metrics in of.items()]
    assert "loop has waste 0.5 and sum 0.25, a factor of 2" in curves.conclusion(toy, found, "size", "waste", here=HERE)
    found.append(record("sum", 16, 1e-6, metrics={"waste": {"value": 0.0, "unit": ""}}))
    found.append(record("loop", 16, 1e-6, metrics=of["loop"]))
    nothing = curves.conclusion(toy, [r for r in found if r.workload["size"] == 16], "size", "waste", here=HERE)
    assert nothing == "With a size of 16 numbers on this machine, loop has waste 0.5 and sum 0."


def test_the_sentence_of_one_rung_and_of_none(toy, records) -> None:
    alone = [r for r in records if r.rung == "sum"]
    assert (
        curves.conclusion(toy, alone, "size", here=HERE)
        == "sum takes 2 µs with a size of 16 numbers and 4 µs with 256 numbers on this machine."
    )
    assert curves.conclusion(toy, [], "size", here=HERE) == curves.EMPTY
    assert curves.EMPTY in words(draw(toy, []))


def test_two_drawings_are_the_same_bytes(toy, records) -> None:
    assert style.png(draw(toy, records)) == style.png(draw(toy, records))


def test_names_with_a_comma_within_are_quoted_in_a_caption() -> None:
    assert listed(["split", "split, overlapped"]) == "split, 'split, overlapped'"


def test_a_single_mark_far_from_the_margin_is_named_beside_it(toy, records, record) -> None:
    away = [record("sum", size, 1e-7, host=AWAY) for size in (16, 256)]
    fig = draw(toy, [records[0], *away])
    (note,) = [t for t in fig.axes[0].texts if t.get_text() == "loop · here"]
    assert note.xy == (16, 1e-6)
    assert max(map(abs, note.get_position())) < 30, "in points from the mark"


def test_a_line_that_ends_early_is_named_at_its_end(toy, record) -> None:
    sizes = (16, 64, 256, 1024, 4096)
    whole = [record("sum", size, 1e-7) for size in sizes]

    def near(number: int) -> bool:
        fig = draw(toy, [*whole, *(record("loop", size, 1e-6) for size in sizes[:number])])
        (note,) = [t for t in fig.axes[0].texts if t.get_text() == "loop"]
        assert note.xy == (sizes[number - 1], 1e-6)
        return note.anncoords == "offset points"

    assert [near(number) for number in (1, 3, 4, 5)] == [True, True, False, False]


def test_what_is_set_otherwise_is_said_in_the_label(toy, records, record) -> None:
    away = [record("sum", size, 1e-7, host=AWAY, dtype="float16", of_ceiling=0.9) for size in (16, 64)]
    assert "sum · H200, float16" in words(draw(toy, [*records, *away]))
    wanted = {"rows": 2, "dtype": "float32"}
    assert "sum · H200, float16" in words(draw(toy, away, wanted=wanted))


def test_a_limit_that_leaves_the_frame_is_named_where_it_does(toy, record) -> None:
    fig = draw(
        toy, [record("sum", size, 1e-6, of_ceiling=share) for size, share in ((16, 0.5), (64, 0.5), (256, 1e-3))]
    )
    (note,) = [t for t in fig.axes[0].texts if t.get_text() == "limit\n(measured)"]
    low = fig.axes[0].get_ylim()[0]
    assert 64 < note.xy[0] < 256 and note.xy[1] == pytest.approx(low)


def test_a_limit_that_is_never_in_the_frame_is_said_to_lie_beyond(toy, record) -> None:
    fig = draw(toy, [record("sum", size, 1e-6, of_ceiling=1e-3) for size in (16, 64)])
    assert "limit (measured)\nbeyond the frame" in words(fig)


def dotted_in_frame(fig) -> bool:
    """True where every point of the one limit lies in the frame."""
    ax = fig.axes[0]
    (dotted,) = [a for a in ax.lines if a.get_linestyle() == ":"]
    low, high = ax.get_ylim()
    return all(low <= y <= high for y in dotted.get_ydata())


@pytest.mark.parametrize(("share", "inside"), [(0.05, True), (0.005, False)])
def test_a_logarithmic_axis_of_rates_has_room_for_its_limit(toy, record, share, inside) -> None:
    fast = [record("sum", size, 1e-6, of_ceiling=share) for size in (16, 64, 1024)]
    fig = draw(toy, fast, "rate")
    assert fig.axes[0].get_yscale() == "log" and dotted_in_frame(fig) is inside
    assert ("limit (measured)" in [t.get_text() for t in fig.axes[0].texts]) is inside


def test_rates_near_one_another_and_times_are_not_squeezed_by_a_far_limit(toy, record) -> None:
    near = [record("sum", size, 1e-6, of_ceiling=0.05) for size in (16, 64)]
    assert draw(toy, near, "rate").axes[0].get_yscale() == "linear" and not dotted_in_frame(draw(toy, near, "rate"))
    assert not dotted_in_frame(draw(toy, near, "time"))


def test_the_limit_of_a_machine_alone_at_another_setting_is_named_after_it(toy, record) -> None:
    away = [record("sum", size, 1e-7, host=AWAY, dtype="float16", of_ceiling=0.5) for size in (16, 64)]
    assert "limit · H200 (measured)" in words(draw(toy, away, wanted={"rows": 2, "dtype": "float32"}))
    assert "limit (measured)" in words(draw(toy, away, wanted={"rows": 2, "dtype": "float16"}))


def test_a_limit_that_ends_early_keeps_its_name_in_the_margin(toy, record) -> None:
    far = [record("loop", size, 1e-6) for size in (16, 1024)]
    fig = draw(toy, [*far, *(record("sum", size, 1e-6, of_ceiling=0.5) for size in (16, 64))])
    assert "limit (measured)" in [t.get_text() for t in fig.axes[0].texts]
