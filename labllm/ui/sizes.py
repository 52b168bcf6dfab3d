"""How much a Run in a notebook may ask of this machine: one place for every lab.

A budget bounds a single call of a rung in FLOPs and bytes moved, and the memory that it may hold. Labs stay under 4
GB of GPU memory unless asked for 'full'. `LABLLM_FAST=1` gives the smallest budget, which automatic tests use.
"""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass
from typing import Any

import torch

from labllm.bench import Ladder, Rung
from labllm.bench.workload import axes
from labllm.ui.style import count

GIGA = 1e9
Step = tuple[Any, tuple[str, ...]]  # a workload and the names of the rungs to measure on it


@dataclass(frozen=True)
class Budget:
    """The most that one call may cost: FLOPs, bytes moved, bytes held."""

    flops: float
    bytes: float
    memory: float


FAST = Budget(0.2 * GIGA, 0.1 * GIGA, 0.5 * GIGA)
BUDGETS = {
    ("cpu", "small"): Budget(4 * GIGA, 1.5 * GIGA, 2 * GIGA),
    ("cpu", "full"): Budget(200 * GIGA, 30 * GIGA, 16 * GIGA),
    ("cuda", "small"): Budget(20_000 * GIGA, 1_000 * GIGA, 4 * GIGA),
    ("cuda", "full"): Budget(500_000 * GIGA, 20_000 * GIGA, 1_000 * GIGA),
}


def fast() -> bool:
    """True under `LABLLM_FAST=1`, the setting of automatic tests."""
    return os.environ.get("LABLLM_FAST", "") not in ("", "0")


def budget(device: str, size: str = "small") -> Budget:
    """The budget of a device: 'fast', 'small' (a notebook) or 'full' (asked for)."""
    kind = torch.device(device).type
    if size != "fast" and (kind, size) not in BUDGETS:
        raise ValueError(f"size must be 'fast', 'small' or 'full', got {size!r}")
    return FAST if size == "fast" or fast() else BUDGETS[kind, size]


def start(ladder: Ladder, device: str) -> Any:
    """Where a notebook's sliders start: on a GPU the workload's defaults, elsewhere the ladder's small size."""
    chosen = ladder.sizes.get("fast" if fast() else "small", ())
    return chosen[0] if chosen and torch.device(device).type != "cuda" else ladder.workload()


def affordable(ladder: Ladder, rung: Rung, workload: Any, limit: Budget) -> bool:
    """True where one call of the rung, by what it moves and holds, stays within the budget."""
    cost = (rung.moved or ladder.cost)(workload)
    held = (ladder.input_bytes(workload) if ladder.input_bytes else 0.0) + (
        rung.memory(workload) if rung.memory else 0.0
    )
    return cost.flops <= limit.flops and cost.bytes <= limit.bytes and held <= limit.memory


def plan(ladder: Ladder, base: Any, x: str, limit: Budget, smallest: bool = False) -> list[Step]:
    """The workloads of a Run over field `x`, each with the rungs that the budget affords there.

    A rung that is too dear at a size is left out there and kept below; `smallest` keeps the first workload only. What a
    ladder lists as its own fast sizes is never too dear, whole models included.
    """
    listed = ladder.sizes.get("fast", ())
    values = next(a.choices for a in axes(ladder.workload) if a.name == x)
    steps = []
    for value in values:
        workload = dataclasses.replace(base, **{x: value})
        rungs = tuple(r.name for r in ladder.rungs if workload in listed or affordable(ladder, r, workload, limit))
        if rungs:
            steps.append((workload, rungs))
    return steps[:1] if smallest else steps


def left_out(ladder: Ladder, steps: list[Step], x: str) -> str:
    """Which rungs a plan leaves out at sizes that it keeps for others, in words; empty where none."""
    parts = []
    for rung in ladder.rungs:
        missing = [getattr(workload, x) for workload, rungs in steps if rung.name not in rungs]
        if missing:
            parts.append(f"{rung.name} at {x} {count(missing[0])}{' and beyond' if len(missing) > 1 else ''}")
    return f"left out as too much for a lab: {', '.join(parts)}" if parts else ""
