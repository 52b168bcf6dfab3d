"""The plain solution of `grid_efficiency`."""

from __future__ import annotations


def grid_efficiency(
    seconds: float, layers: int, all_reduce: float, tp: int, pp: int, micro_batches: int
) -> tuple[float, float]:
    communication = 2 * layers / pp * all_reduce if tp > 1 else 0.0
    stage = seconds / (tp * pp) + communication
    passes = micro_batches + pp - 1
    return seconds / (pp * stage), micro_batches * seconds / (tp * pp * passes * stage)
