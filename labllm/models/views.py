"""The counts and records of this room as a notebook shows them: parts as marks under a roof, costs and floors as
rows.

Nothing here measures; each function turns what `cost`, `counted` and records say into marks or rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from labllm.bench import Record, Roof
from labllm.models.config import ModelConfig
from labllm.models.cost import PARTS_OF_A_MODEL, step_cost, times_in_model
from labllm.models.counted import counted_flops
from labllm.roofline import Cost
from labllm.ui.roofs import Mark


def marks(records: Iterable[Record]) -> list[Mark]:
    """Timed records of layer parts as marks: named by part, in one family for each step that they belong to."""
    return [
        Mark(r.workload["part"], r.compulsory.flops / r.compulsory.bytes, r.flop_rate or 0.0, _step(r))
        for r in records
        if r.seconds and r.compulsory.flops
    ]


def cost_rows(config: ModelConfig, batch: int = 1, queries: int = 1, context: int = 1) -> list[dict[str, Any]]:
    """One row a part of a step in 2-byte numbers: FLOPs by formula and by counter, bytes, intensity; then the sum."""
    costs, counted = step_cost(config, batch, queries, context), counted_flops(config, batch, queries, context)
    rows = [
        {
            "part": part,
            "times": times_in_model(config, part),
            "MFLOP by formula": costs[part].flops / 1e6,
            "MFLOP by counter": counted[part] / 1e6 if part in counted else None,
            "MB moved": costs[part].bytes / 1e6,
            "FLOP/B": costs[part].intensity,
        }
        for part in PARTS_OF_A_MODEL
    ]
    whole = sum(costs[part].flops for part in counted)
    moved = sum(cost.bytes for cost in costs.values())
    total = {"part": "all but norms", "MFLOP by formula": whole / 1e6, "MFLOP by counter": sum(counted.values()) / 1e6}
    return [*rows, total | {"MB moved": moved / 1e6, "FLOP/B": whole / moved}]


def floor_rows(records: Iterable[Record], roof: Roof) -> list[dict[str, Any]]:
    """One row a timed record of a layer part: its floor under `roof`, its time, and how many floors that is."""
    rows = []
    for r in records:
        floor = roof.seconds(Cost(r.compulsory.flops, r.compulsory.bytes), r.workload["dtype"])
        if r.seconds and floor:
            rows.append(
                {
                    "part": r.workload["part"],
                    "step": _step(r),
                    "floor (µs)": floor * 1e6,
                    "measured (µs)": r.seconds * 1e6,
                    "measured / floor": r.seconds / floor,
                }
            )
    return rows


def _step(record: Record) -> str:
    queries, batch = record.workload["queries"], record.workload["batch"]
    if queries > 1:
        return f"prefill, {f'{batch} x ' if batch > 1 else ''}{queries} tokens"
    return f"decode, {batch} sequence{'' if batch == 1 else 's'}"
