"""VirtualClock believes what a simulated run says, and the record names the clock."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from labllm.bench import Ladder, Rung, measure
from labllm.bench.compare import Verdict
from labllm.bench.virtual import VirtualClock
from labllm.roofline import Cost


@dataclass(frozen=True)
class Nothing:
    pass


@dataclass(frozen=True)
class Simulated:
    seconds: float


def right(out: Any, reference: Any, dtype: str, seed: int) -> Verdict:
    return Verdict(0.0, 0.0)


def test_a_record_of_a_simulated_run_has_its_virtual_time() -> None:
    rungs = (Rung("slow", lambda _: Simulated(3e6)), Rung("fast", lambda _: Simulated(2e-9)))
    ladder = Ladder(
        "simulated", "", Nothing, lambda w, d, s: None, lambda w: Cost(), lambda i, r: None, rungs,
        compare=right, clock=VirtualClock(),
    )  # fmt: skip
    records = list(measure(ladder, Nothing(), device="cpu"))
    assert [(r.status, r.seconds, r.time.samples, r.method) for r in records] == [
        ("ok", 3e6, 1, "clock: virtual"),
        ("ok", 2e-9, 1, "clock: virtual"),
    ]
    assert not any(r.flags or r.of_datasheet or r.of_ceiling for r in records), "a simulation has no roof"
