"""Measured scaling beside what the formula predicts from the messages alone, as rows of a table."""

from __future__ import annotations

from collections.abc import Sequence

from labllm.models.tensor_parallel.measured import Measured
from labllm.models.tensor_parallel.scaling import Scaling, scaled
from labllm.parallel.communication import AlphaBeta
from labllm.ui.style import times


def prediction(found: Measured, cost: AlphaBeta) -> Scaling:
    """The formula's scaling of a measured setting: its time on one GPU shared, and messages of line `cost`."""
    return scaled(found.config, found.alone, found.ranks, found.tokens, found.workload["dtype"], cost)


def rows(steps: Sequence[Measured], cost: AlphaBeta) -> list[dict[str, object]]:
    """A row a setting; `cost` is the line of an all-reduce among as many ranks."""
    return [
        {
            "step": m.words,
            "one (ms)": 1e3 * m.alone,
            f"{m.ranks} ranks (ms)": 1e3 * m.seconds,
            "rung": m.rung,
            "times as fast": m.speedup,
            "efficiency (%)": 100 * m.efficiency,
            "predicted (%)": 100 * prediction(m, cost).efficiency,
            "all-reduces (% of the step)": 100 * min(1.0, m.talking(cost)),
            "of that latency (%)": 100 * cost.latency_share(m.size),
        }
        for m in steps
    ]


def conclusion(steps: Sequence[Measured]) -> str:
    """Between which ends the speed-up lies."""
    least, most = min(steps, key=lambda m: m.speedup), max(steps, key=lambda m: m.speedup)
    ends = f"{times(least.speedup)} ({least.words}) to {times(most.speedup)} ({most.words})"
    return f"{least.ranks} ranks are {ends} as fast as one; 'predicted' takes one GPU's time and the messages' line."
