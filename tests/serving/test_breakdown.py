"""Where a decode step's time goes, from a log made by hand and from an engine's."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from scenes import engine_of, request, serve

from labllm.serving.breakdown import Breakdown
from labllm.serving.config import CONTINUOUS
from labllm.serving.log import Spent, StepRecord

NOTHING = Spent()


def record(end: float, new: int = 1, spent: Spent = NOTHING, device: tuple[float, float] | None = None) -> StepRecord:
    return StepRecord(end - 1, end, (("a", 5, new),), 1, 0, 1, (), spent, device)


def test_only_decodes_that_follow_one_another_count() -> None:
    log = [
        record(9.0, new=7, device=(0.0, 8.0)),
        record(10.0, device=(8.0, 9.0)),
        record(12.0, spent=Spent(0.1, 0.2, 1.0, 0.3), device=(9.0, 10.5)),
        record(13.0, spent=Spent(0.3, 0.2, 0.0, 0.1), device=(11.0, 12.5)),
    ]
    found = Breakdown.of(log)
    assert (found.steps, found.step) == (2, 1.5)
    assert found.spent == pytest.approx(Spent(0.2, 0.2, 0.5, 0.2))
    assert found.busy == pytest.approx(3.0 / 3.5), "half a second of three and a half the device waited"
    assert found.named()["GPU busy in decode"] == (found.busy, "%")


def test_without_a_gpu_nothing_is_said_of_it_and_without_decodes_nothing_at_all() -> None:
    found = Breakdown.of([record(1.0), record(2.0)])
    assert found.busy is None and "GPU busy in decode" not in found.named()
    assert Breakdown.of([]) is None and Breakdown.of([record(1.0), record(2.0, new=3)]) is None


def test_an_engine_notes_where_its_thread_was() -> None:
    engine = engine_of(CONTINUOUS)
    schedule, run = engine.scheduler.schedule, engine.executor.run
    engine.scheduler.schedule = lambda: (engine.clock.sleep(1.0), schedule())[1]
    engine.executor.run = lambda step: (engine.clock.sleep(2.0), run(step))[1]
    serve(engine, request("a", [1], 3))
    assert [r.spent for r in engine.log] == [Spent(1.0, 2.0, 0.0, 0.0)] * 3
    assert [r.start for r in engine.log] == [1.0, 4.0, 7.0] and [r.end for r in engine.log] == [3.0, 6.0, 9.0]
    assert Breakdown.of(engine.log).step == 3.0
