"""The harness tells the truth about rungs that lie, fail, do not fit or cannot run."""

from __future__ import annotations

import dataclasses
import sys
import weakref
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
import toy

from labllm.bench import Roof, measure
from labllm.bench.compare import ROWS


@pytest.fixture(scope="module")
def records():
    return {
        r.rung: r
        for r in measure(
            toy.ladder(), toy.Double(64), device="cpu", roof=Roof("x", "measured", 1e30, {"float32": 1e30})
        )
    }


def test_every_rung_has_one_record(records) -> None:
    assert set(records) == {r.name for r in toy.RUNGS}


def test_an_honest_rung_is_timed_weighed_and_placed(records) -> None:
    record = records["honest"]
    assert record.status == "ok" and record.error == 0
    assert record.time.samples >= 3 and record.time.p10 <= record.time.median <= record.time.p90
    assert record.peak_bytes == 4 * 64
    assert record.compulsory.bytes == 8 * 64
    assert record.of_ceiling == pytest.approx(8 * 64 / 1e30 / record.seconds)
    assert record.bandwidth == pytest.approx(8 * 64 / record.seconds)


def test_a_rung_that_lies_is_caught(records) -> None:
    assert records["liar"].status == "wrong"
    assert "5.0e-03 exceeds 1e-05" in records["liar"].reason
    assert records["liar"].time is None


def test_a_lossy_rung_is_judged_on_its_own_operands(records) -> None:
    assert records["rounded"].status == "ok"
    assert records["rounded"].metrics["distance to exact"].value > 1e-3
    assert records["rounded wrongly"].status == "wrong"


def test_rows_left_unwritten_are_caught(records) -> None:
    assert records["half written"].status == "wrong"
    assert records["half written"].error is None, "an infinite error has no place in JSON"


@pytest.mark.parametrize(
    ("rung", "status", "reason"),
    [
        ("memory gone", "out of memory", "1 TB"),
        ("huge", "out of memory", "GB are free"),
        ("raises", "failed", "KeyError: 'lost'"),
        ("no kernel", "cannot run here", "no kernel for odd sizes"),
        ("refuses", "cannot run here", "n must be a prime"),
        ("gpu only", "cannot run here", "NVIDIA GPU"),
    ],
)
def test_what_goes_wrong_becomes_a_record(records, rung, status, reason) -> None:
    assert records[rung].status == status
    assert reason in records[rung].reason


def test_a_memory_limit_is_kept() -> None:
    rung = toy.Rung("greedy", lambda x: 2 * x, memory=lambda w: 2e9)
    (record,) = measure(toy.ladder(rung), toy.Double(64), device="cpu", memory_limit=1e9)
    assert record.status == "out of memory" and "may use 1.0 GB" in record.reason


def test_stop_cancels_the_rest() -> None:
    asked = iter([False, True, True, True])
    records = list(measure(toy.ladder(toy.HONEST, toy.LOSSY), toy.Double(64), device="cpu", stop=lambda: next(asked)))
    assert [r.status for r in records] == ["ok", "cancelled"]


def test_an_answer_above_the_roof_is_flagged() -> None:
    roof = Roof("slow", "measured", 1.0, {"float32": 1.0})
    (record,) = measure(toy.ladder(toy.HONEST), toy.Double(64), device="cpu", roof=roof)
    assert record.of_ceiling > 1 and any("measured" in flag for flag in record.flags)


def test_measuring_leaves_no_mode_behind() -> None:
    for _ in measure(toy.ladder(toy.HONEST), toy.Double(64), device="cpu"):
        assert torch.is_grad_enabled() and not torch.is_inference_mode_enabled()


def test_a_ladder_adds_its_own_metrics() -> None:
    ladder = toy.ladder(toy.HONEST, metrics=lambda w, out, seconds: {"numbers a second": (w.n / seconds, "1/s")})
    (record,) = measure(ladder, toy.Double(64), device="cpu")
    assert record.metrics["numbers a second"].value == pytest.approx(64 / record.seconds)


def test_metrics_that_fail_are_a_failed_record() -> None:
    ladder = toy.ladder(toy.HONEST, metrics=lambda w, out, seconds: {"share": (w.n / 0, "%")})
    (record,) = measure(ladder, toy.Double(64), device="cpu")
    assert record.status == "failed" and record.reason.startswith("ZeroDivisionError")


def test_an_answer_is_let_go_before_the_next_rung_runs() -> None:
    answers: list[weakref.ref] = []
    alive: list[int] = []

    def first(x: torch.Tensor) -> torch.Tensor:
        out = 2 * x
        answers.append(weakref.ref(out))
        return out

    def second(x: torch.Tensor) -> torch.Tensor:
        alive.append(sum(answer() is not None for answer in answers))
        return 2 * x

    list(measure(toy.ladder(toy.Rung("first", first), toy.Rung("second", second)), toy.Double(64), device="cpu"))
    assert answers and set(alive) == {0}


def test_at_benchmark_size_random_rows_are_compared() -> None:
    seen = []

    def reference(x, rows):
        seen.append(rows)
        return 2 * x[rows].double()

    (record,) = measure(
        toy.ladder(toy.HONEST).__class__(**{**vars(toy.ladder(toy.HONEST)), "reference": reference}),
        toy.Double(4096),
        device="cpu",
    )
    assert record.status == "ok" and len(seen[0]) == ROWS == len(set(seen[0].tolist()))


def test_what_is_timed_is_what_was_checked() -> None:
    seeds: set[int] = set()

    def inputs(w: toy.Double, device: str, seed: int) -> torch.Tensor:
        seeds.add(seed)
        return torch.rand(w.n, 1)

    ladder = dataclasses.replace(toy.ladder(toy.HONEST), inputs=inputs)
    list(measure(ladder, toy.Double(64), device="cpu", seed=7))
    assert seeds == {7}


@pytest.mark.gpu
def test_a_short_kernel_goes_into_a_graph() -> None:
    (record,) = measure(toy.ladder(toy.HONEST), toy.Double(64), device="cuda")
    assert "graph" in record.method


@pytest.mark.gpu
def test_what_cannot_be_captured_is_marked() -> None:
    syncs = toy.Rung("syncs", lambda x: 2 * x if x.sum().item() else x)
    methods = {r.rung: r.method for r in measure(toy.ladder(toy.HONEST, syncs), toy.Double(64), device="cuda")}
    assert "with launch" in methods["syncs"] and "graph" in methods["honest"]


def test_a_ladder_says_which_part_of_the_machine_limits_it() -> None:
    roof = Roof("x", "measured", 1e30, {"float32": 1e30}, {"link": 1e20})
    for limit, bandwidth in ((lambda r: r, 1e30), (lambda r: r.of("link"), 1e20), (lambda r: r.of("other"), None)):
        (record,) = measure(toy.ladder(toy.HONEST, roof=limit), toy.Double(64), device="cpu", roof=roof)
        want = pytest.approx(8 * 64 / bandwidth / record.seconds) if bandwidth else None
        assert record.of_ceiling == want
