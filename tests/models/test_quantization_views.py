"""The panels and the table of lab 07 say what their numbers are."""

from __future__ import annotations

import pytest
import torch

from labllm.bench import Record
from labllm.bench.record import Host, Metric, Spread, Work
from labllm.models.quantization_ladder import Rounded
from labllm.models.quantization_table import machine, table
from labllm.models.quantization_views import gptq_steps, linear_of, spread
from labllm.ui import course as courses

NOTHING = Work(flops=1, bytes=1)


@pytest.mark.parametrize("panel", [spread, gptq_steps])
def test_every_control_changes_the_panel(panel):
    shown = panel()
    assert shown._repr_mimebundle_()["text/plain"].endswith(".")


def test_the_courses_fit_on_their_axes(monkeypatch: pytest.MonkeyPatch):
    drawn = []
    chart = courses.chart
    monkeypatch.setattr(courses, "chart", lambda *args, **options: drawn.append(chart(*args, **options)) or drawn[-1])
    gptq_steps()
    (axes,) = drawn[0].axes
    top = max(max(line.get_ydata()) for line in axes.lines)
    assert 0.5 * axes.get_ylim()[1] < top <= axes.get_ylim()[1]


def test_after_the_last_column_no_others_are_left_to_move():
    *_, before, last = gptq_steps().table.value.split("<tr>")
    assert ">224<" in before and "–" not in before
    assert ">256<" in last and last.count("–") == 1


def test_planted_outliers_show_in_the_inputs_and_shrink_the_weights():
    weights, ratios = [], []
    for outliers in ("none", "planted"):
        weight, inputs = linear_of("gate_proj", 3, outliers)
        weights.append(weight)
        ratios.append((inputs.mean_abs.max() / inputs.mean_abs.median()).item())
    assert ratios[1] > 4 * ratios[0]
    changed = (weights[0] != weights[1]).any(0)
    assert changed.sum() == 3 and torch.allclose(weights[1][:, changed] * 30, weights[0][:, changed], rtol=1e-5)


def record(rung: str, host: str, kind: str, perplexity: float, **fields: object) -> Record:
    figures = {
        "perplexity": perplexity,
        "KL": 0.1,
        "agreement": 0.9,
        "bits a weight": 4.0,
        "model": 5e6,
        "quantising": 1.0,
    }
    return Record(
        ladder="quantization", rung=rung, workload=vars(Rounded(**fields)), status="ok", source="", compulsory=NOTHING,
        time=Spread(median=1.0, p10=1.0, p90=1.0, samples=1), moved=NOTHING, date="2026-01-02",
        host=Host(name=host, kind=kind, versions={}),
        metrics={name: Metric(value=value, unit="") for name, value in figures.items()},
    )  # fmt: skip


def test_the_table_is_of_one_machine_and_names_16_bits_once():
    records = [
        record("16 bits", "p", "cpu", 9.0, bits=b, granularity=g) for b in (4, 3) for g in ("tensor", "group 64")
    ]
    records += [record("GPTQ", "p", "cpu", 10.0, granularity="group 64"), record("rounding", "p", "cpu", 11.0, bits=3)]
    records += [record("FP8", "p", "cpu", 9.1, bits=8)]
    rows = table(records)
    assert [(r["weights"], r["scales"], r["method"]) for r in rows] == [
        ("16 bits", "", "as trained"),
        ("8 bits", "channel", "FP8"),
        ("4 bits", "group 64", "GPTQ"),
        ("3 bits", "group 64", "rounding"),
    ]
    assert table(records, bits=3)[-1]["perplexity"] == 11.0
    assert machine(records) == "p" and machine([*records, record("GPTQ", "g", "cuda", 1.0)]) == "g"
    assert table([]) == [] and machine([]) == ""
