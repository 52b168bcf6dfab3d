"""How answers of one tensor and of several are judged."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
import toy

from labllm.bench import Close, SameIds, measure

LARGE, SMALL = torch.randn(8, 64), torch.randn(8, 1) * 1e-3


def judge(out, ref=(LARGE, SMALL), **more):
    def reference(rows):
        parts = [part if rows is None else part[rows] for part in (ref if isinstance(ref, tuple) else (ref,))]
        return tuple(part.double() for part in parts) if isinstance(ref, tuple) else parts[0].double()

    return Close(**more)(out, reference, "float32", 0)


def test_the_worst_part_counts() -> None:
    assert judge((LARGE, SMALL)).ok and judge((LARGE, SMALL)).error == 0
    verdict = judge((LARGE, SMALL * 1.01))
    assert verdict.error == pytest.approx(0.01, rel=1e-3)
    assert "in part 1 of the output" in verdict.reason
    assert "in part 0" in judge((LARGE * 1.01, SMALL)).reason


def test_a_part_that_is_not_finite_is_wrong() -> None:
    assert judge((LARGE, SMALL / 0)).error == float("inf")


def test_the_same_rows_of_every_part_are_compared() -> None:
    index = torch.arange(100.0)[:, None]
    assert judge((index, index + 1), (index, index + 1), rows=10).error == 0
    assert not judge((index, index.flip(0)), (index, index), rows=10).ok


@pytest.mark.parametrize(
    ("out", "reason"),
    [
        ((LARGE,), r"rows \[8, 64\], the reference \[8, 64\], \[8, 1\]"),
        ((LARGE, SMALL, SMALL), "the reference"),
        ((SMALL, LARGE), "the reference"),
        (LARGE, "the reference"),
        ((LARGE, SMALL[:4]), r"equally many rows, got \[8, 64\], \[4, 1\]"),
        ((LARGE, None), "the output is a NoneType, not a tensor"),
        ((), "equally many rows"),
        ([LARGE, SMALL], "the output is a list, not a tensor"),
    ],
)
def test_an_output_of_other_parts_is_wrong(out, reason: str) -> None:
    verdict = judge(out)
    assert not verdict.ok
    assert re.search(reason, verdict.reason), verdict.reason


def test_one_tensor_is_judged_as_before() -> None:
    verdict = judge(LARGE * 1.01, LARGE)
    assert verdict.reason == "relative error 1.0e-02 exceeds 1e-05"
    assert judge(LARGE, LARGE).ok


def test_a_rung_that_overwrites_its_input_is_checked_on_a_fresh_one() -> None:
    in_place = toy.Rung("in place", lambda x: x.mul_(2), in_place=True)
    wrong = toy.Rung("in place, wrong", lambda x: x.mul_(3), in_place=True)
    ladder = toy.ladder(in_place, wrong)
    states = {r.rung: r.status for r in measure(ladder, toy.Double(64), device="cpu")}
    assert states["in place"] == "ok"
    assert states["in place, wrong"] == "wrong"


@pytest.mark.parametrize(("out", "share"), [([[1, 2], [3, 4]], 0.0), ([[1, 2], [3, 5]], 0.25), ([[1, 2]], 1.0)])
def test_ids_are_equal_or_their_share_that_differs_is_the_error(out, share) -> None:
    verdict = SameIds()(out, lambda rows: [[1, 2], [3, 4]], "float32", 0)
    assert verdict.error == share and verdict.ok == (share == 0) and bool(verdict.reason) == (share > 0)
