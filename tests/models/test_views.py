"""What a notebook shows of counts and records: marks, rows and the view of a bound say what their sources say."""

from __future__ import annotations

import dataclasses

import pytest

from labllm.bench import Record, Roof
from labllm.bench.record import Host, Spread, Work
from labllm.models.bound import step_bound
from labllm.models.bound_view import bound_view, what_bounds
from labllm.models.cost import PARTS_OF_A_MODEL
from labllm.models.parts import LayerPart, part_cost
from labllm.models.pico.shape import PICO
from labllm.models.shapes import SHAPES
from labllm.models.views import cost_rows, floor_rows, marks

ROOF = Roof("box", "datasheet", 1e12, {"float16": 1e14, "float32": 1e13})


def timed(w: LayerPart, seconds: float) -> Record:
    cost = part_cost(w)
    work = Work(flops=cost.flops, bytes=cost.bytes)
    spread = Spread(median=seconds, p10=seconds, p90=seconds, samples=1)
    return Record(
        ladder="layer-parts", rung="torch", workload=dataclasses.asdict(w), status="ok", time=spread, source="",
        compulsory=work, moved=work, host=Host(name="box", kind="cpu", versions={}), date="2026-01-02",
    )  # fmt: skip


def test_marks_stand_where_the_record_does() -> None:
    w = LayerPart("down", 128, 1, 1)
    (mark,) = marks([timed(w, 1e-3)])
    assert mark.name == "down" and mark.intensity == part_cost(w).intensity
    assert mark.rate == pytest.approx(part_cost(w).flops / 1e-3) and mark.family == "decode, 1 sequence"
    prefill = marks([timed(LayerPart("down", 128, 128, 16), 1e-3)])[0]
    assert prefill.family == "prefill, 16 x 128 tokens"


def test_every_part_has_a_row_and_both_counts_agree() -> None:
    *rows, total = cost_rows(PICO, 2, 1, 300)
    assert [row["part"] for row in rows] == list(PARTS_OF_A_MODEL)
    for row in (*rows[1:], total):
        assert row["MFLOP by formula"] == pytest.approx(row["MFLOP by counter"])
    assert rows[0]["MFLOP by counter"] is None
    assert total["MB moved"] == pytest.approx(sum(row["MB moved"] for row in rows))


def test_a_floor_is_the_longer_of_two_times() -> None:
    w = LayerPart("down", 128, 1, 1)
    (row,) = floor_rows([timed(w, 1e-3)], ROOF)
    assert row["floor (µs)"] == pytest.approx(part_cost(w).bytes / 1e12 * 1e6)
    assert row["measured / floor"] == pytest.approx(1000 / row["floor (µs)"])
    assert floor_rows([timed(LayerPart("down", 128, 1, 1, "pico", "bfloat16"), 1e-3)], ROOF) == []


def test_the_view_tells_the_floor_and_the_limit() -> None:
    llama = SHAPES["Llama-3.1-8B"]
    view = bound_view("8B", llama, ROOF, 80e9, "float16", 1, 1, 512)
    step = step_bound(llama, ROOF, "float16", 1, 1, 512)
    assert f"{step.tokens_per_second:,.3g} tokens are generated a second: memory is the limit" in view.sentence
    assert view.table is not None and list(view.table["part"])[-1] == "whole step"
    assert view.table["floor (µs)"].iloc[-1] == pytest.approx(step.floor() * 1e6)
    prefill = bound_view("8B", llama, ROOF, 80e9, "float16", 1, 2048, 2048)
    assert "arithmetic is the limit" in prefill.sentence and "read a second" in prefill.sentence


def test_what_does_not_fit_and_what_has_no_unit_is_said() -> None:
    text = bound_view("70B", SHAPES["Llama-3.1-70B"], ROOF, 80e9, "float8", 64, 1, 32768).sentence
    assert "does not fit into the 80 GB" in text and "no unit for float8" in text and "computed in float16" in text


def test_every_control_of_the_panel_moves_the_picture() -> None:
    panel = what_bounds(ROOF, 8e9)
    for name, other in (("model", "pico"), ("step", "prefill"), ("batch", 64), ("context", 8192), ("dtype", "float8")):
        before = panel.image.value
        panel.controls[name].value = other
        assert panel.image.value != before and not panel.errors, name
    panel.controls["device"].value = "this machine"
    assert "8 GB" in panel.sentence.value and not panel.errors
