"""Roofline, heat map, memory, shares, table and picture."""

from __future__ import annotations

import base64

import pandas as pd
import pytest

from labllm.bench import Roof
from labllm.bench.record import Metric
from labllm.ui import curves, draw, heatmap, memory, roofline, shares, show, table
from labllm.ui.series import missing_word

HERE, AWAY = "Test CPU, 2 cores", "NVIDIA H200"
ROOFS = (Roof(HERE, "measured", 1e9, {"float32": 1e9}), Roof(HERE, "datasheet", 2e9, {"float32": 4e9}))


def words(fig) -> str:
    return "\n".join(t.get_text() for t in [*fig.texts, *fig.axes[0].texts])


class TestRoofline:
    def test_points_stand_at_what_they_move(self, toy, record) -> None:
        fig = roofline.chart(toy, [record("loop", 64, 1e-6), record("sum", 64, 1e-6)], ROOFS, here=HERE)
        loop, total = (next(a for a in fig.axes[0].lines if a.get_label().startswith(n)) for n in ("loop ·", "sum ·"))
        assert list(total.get_xdata()) == pytest.approx([128 / 520]) and list(total.get_ydata()) == pytest.approx(
            [128 / 1e-6]
        )
        assert list(loop.get_ydata()) == pytest.approx([8 * 128 / 1e-6])
        assert "loop:\nmoves 8x the bytes, computes 8x\nthe FLOPs it must" in words(fig)

    def test_roofs_are_named_and_bend_at_their_ridge(self, toy, record) -> None:
        fig = roofline.chart(toy, [record("sum", 64, 1e-6)], ROOFS, here=HERE)
        measured = next(a for a in fig.axes[0].lines if a.get_label() == "measured roof")
        assert max(measured.get_ydata()) == 1e9
        assert all(y == pytest.approx(min(1e9, 1e9 * x)) for x, y in zip(*measured.get_data(), strict=True))
        assert "measured roof of Test, 2 cores: 1 GB/s, 1 GFLOP/s" in words(fig)

    def test_the_sentence_says_what_binds_and_how_near(self, toy, record) -> None:
        text = roofline.conclusion(toy, [record("loop", 64, 1e-5), record("sum", 64, 1e-6)], ROOFS, here=HERE)
        assert "bound by memory bandwidth on this machine" in text
        assert "sum reaches 52 % of the measured roof" in text and "loop moves 8x the bytes" in text

    def test_above_the_roof_it_says_what_that_can_mean(self, toy, record) -> None:
        text = roofline.conclusion(toy, [record("sum", 64, 1e-7)], ROOFS, here=HERE)
        assert "sum stands at 520 % of the measured roof: caches serve it, or the measured roof is too low" in text

    def test_nothing_to_place_is_an_error(self, toy, record) -> None:
        with pytest.raises(ValueError, match="no record of ladder 'toy' has a time"):
            roofline.chart(toy, [record("sum", 64, status="out of memory")], ROOFS)
        with pytest.raises(ValueError, match="no roof knows a rate for bfloat16"):
            roofline.chart(toy, [record("sum", 64, 1e-6)], ROOFS, "bfloat16")


class TestHeatmap:
    @pytest.fixture
    def grid(self, record) -> list:
        """'sum' wins where size times rows exceeds 64, and is out of memory in one corner."""
        return [
            record(rung, size, None if gone else seconds, rows=rows, status="out of memory" if gone else "ok")
            for size in (16, 64) for rows in (1, 4) for rung, seconds in (("loop", size * rows * 1e-8), ("sum", 64e-8))
            for gone in [rung == "sum" and (size, rows) == (64, 4)]
        ]  # fmt: skip

    def test_cells_hold_ratios_and_hatches_and_the_line_between(self, toy, grid) -> None:
        grid = [
            r.model_copy(update={"time": r.time.model_copy(update={"median": 40e-8})})
            if r.rung == "sum" and r.time
            else r
            for r in grid
        ]
        fig = heatmap.chart(toy, grid, "loop", "sum", "size", "rows", HERE)
        ax = fig.axes[0]
        assert {t.get_text() for t in ax.texts} == {"0.40x", "1.6x", "out of\nmemory"}
        assert sum(bool(p.get_hatch()) for p in ax.patches) == 1
        assert len([a for a in ax.lines if a.get_linewidth() == 3]) == 2
        assert "hatched: loop is the faster one" in words(fig)

    def test_the_sentence_counts_places(self, toy, grid) -> None:
        text = heatmap.conclusion(toy, grid, "loop", "sum", "size", "rows", HERE)
        assert text == "sum is nowhere faster than loop on Test, 2 cores: loop is up to 4x as fast at size 16, rows 1."

    def test_nothing_measured_and_mixed_settings_are_errors(self, toy, grid, record) -> None:
        with pytest.raises(ValueError, match="there is no record of 'loop' or 'sum' on NVIDIA H200"):
            heatmap.chart(toy, grid, "loop", "sum", "size", "rows", AWAY)
        with pytest.raises(ValueError, match="mix settings of dtype"):
            heatmap.chart(toy, [*grid, record("sum", 16, 1e-6, dtype="float16")], "loop", "sum", "size", "rows", HERE)


class TestMemory:
    BARS = {"short": {"weights": 16e9, "KV cache": 1e9}, "long": {"weights": 16e9, "KV cache": 17e9}}  # noqa: RUF012

    def test_bars_start_at_zero_and_add_up(self) -> None:
        fig = memory.chart(self.BARS, room={"RTX 4090": 24e9})
        bars = fig.axes[0].patches
        assert fig.axes[0].get_xlim()[0] == 0
        assert sum(b.get_width() for b in bars if round(b.get_y() + b.get_height() / 2) == 1) == 33e9
        assert len({b.get_hatch() for b in bars}) == 2
        assert {"17 GB", "33 GB", "RTX 4090"} <= {t.get_text() for t in fig.axes[0].texts}

    def test_the_sentence_says_what_does_not_fit(self) -> None:
        text = memory.conclusion(self.BARS, room={"RTX 4090": 24e9})
        assert text == "long needs 33 GB, 52 % of it KV cache; short needs 17 GB; not within RTX 4090 (24 GB): long."

    def test_peaks_of_records_keep_reasons(self, toy, record) -> None:
        bars = memory.of_records(
            toy, [record("sum", 64, 1e-6, peak_bytes=512.0), record("loop", 64, status="out of memory")]
        )
        assert bars == {"loop (out of memory)": {"peak": 0.0}, "sum": {"peak": 512.0}}

    def test_nonsense_is_refused(self) -> None:
        with pytest.raises(ValueError, match="at least one bar"):
            memory.chart({})
        with pytest.raises(ValueError, match="cannot be negative, got -1"):
            memory.chart({"a": {"b": -1}})


class TestShares:
    XS, PARTS = (512, 4096), {"GEMM": [9.0, 20.0], "attention": [1.0, 60.0]}

    def test_columns_add_up_to_the_whole(self) -> None:
        fig = shares.chart(self.XS, self.PARTS, "context (tokens)", "Where the time goes")
        heights = [b.get_height() for b in fig.axes[0].patches]
        assert heights == pytest.approx([0.9, 0.25, 0.1, 0.75])
        assert {"GEMM", "attention", "90", "75"} <= {t.get_text() for t in fig.axes[0].texts}
        assert fig.axes[0].get_ylim() == (0, 1)

    def test_the_sentence_names_both_and_the_crossing(self) -> None:
        assert shares.conclusion(self.XS, self.PARTS, "context (tokens)") == (
            "From 512 to 4k tokens of context, the share of attention in the time grows from 10 % to 75 %, "
            "and that of GEMM falls from 90 % to 25 %; the former is the larger from 4k on."
        )

    def test_nonsense_is_refused(self) -> None:
        for parts, message in (
            ({"a": [1]}, "one amount for each of the 2"),
            ({"a": [1, -1]}, "not be negative"),
            ({"a": [1, 0]}, "no shares"),
        ):
            with pytest.raises(ValueError, match=message):
                shares.chart(self.XS, parts, "x", "title")


class TestTable:
    def test_numbers_have_units_and_states_have_words(self, toy, records, record) -> None:
        frame = table.frame(
            toy, [*records, record("sum", 1024, status="out of memory", reason="it needs 9 GB")], "size", HERE
        )
        row = frame[(frame["rung"] == "sum") & (frame["size (numbers)"] == 64)].iloc[0]
        assert row["time (µs)"] == pytest.approx(3) and row["GFLOP/s"] == pytest.approx(128 / 3e-6 / 1e9)
        assert frame.iloc[-1]["state"] == "out of memory: it needs 9 GB"

    def test_a_metric_that_is_asked_for_stands_before_the_time(self, toy, records) -> None:
        given = {"TTFT": Metric(value=0.25, unit="s"), "occupancy": Metric(value=0.5, unit="%")}
        carry = [records[0].model_copy(update={"metrics": given}), *records[1:]]
        frame = table.frame(toy, carry, "size", HERE, metric="TTFT")
        assert list(frame.columns[2:5]) == ["size (numbers)", "TTFT (s)", "time (µs)"]
        assert sorted(frame["TTFT (s)"].dropna()) == [0.25] and frame["TTFT (s)"].isna().sum() == len(records) - 1
        assert table.frame(toy, carry, "size", HERE, metric="occupancy")["occupancy (%)"].max() == 50
        assert table.frame(toy, carry, "size", HERE, metric="speedup").equals(table.frame(toy, carry, "size", HERE))

    def test_state_says_everything_that_matters(self, record) -> None:
        text = table.state(record("sum", 64, 1e-6, shared=True, flags=("above the measured ceiling",)), old=True)
        assert text == "ok; older code; shared GPU; above the measured ceiling"
        assert missing_word(record("sum", 64, status="wrong")) == "wrong answer"

    def test_html_takes_the_notebooks_colours_and_escapes(self, toy, records) -> None:
        frame = table.frame(toy, records, "size", HERE)
        frame["state"] = "<b>"
        html = table.html(frame)
        assert "color:inherit" in html and "&lt;b&gt;" in html and "<b>" not in html
        assert html.count("<tr>") == len(records) + 1
        assert table.html(frame.iloc[:0]) == ""

    def test_a_long_table_scrolls_in_a_frame_that_says_its_rows(self, toy, records) -> None:
        frame = table.frame(toy, records, "size", HERE)
        assert table.boxed(frame) == table.html(frame)
        long = table.boxed(pd.concat([frame] * 4))
        assert "overflow:auto" in long and long.count("<tr>") == 1 + 24 and "24 rows" in long


class TestPicture:
    def test_alternative_text_and_sentence_travel_with_the_picture(self, toy, records) -> None:
        bundle = draw(curves, toy, records, "size", here=HERE)._repr_mimebundle_()
        assert bundle["text/plain"].startswith("With a size of 256 numbers")
        assert f'alt="{bundle["text/plain"]}"' in bundle["text/html"]
        data = bundle["text/html"].split("base64,")[1].split('"')[0]
        assert base64.b64decode(data).startswith(b"\x89PNG")
        assert "image/png" not in bundle

    def test_options_of_the_figure_alone_do_not_disturb_the_sentence(self) -> None:
        picture = draw(memory, TestMemory.BARS, title="Memory", room={"RTX 4090": 24e9})
        assert "RTX 4090" in picture.sentence

    def test_a_picture_needs_its_sentence(self, toy, records) -> None:
        with pytest.raises(ValueError, match="needs a sentence"):
            show(curves.chart(toy, records, "size", here=HERE), " ")

    def test_quotes_in_the_sentence_are_escaped(self, toy, records) -> None:
        assert 'alt="&quot;" ' in show(curves.chart(toy, records, "size", here=HERE), '"').html
