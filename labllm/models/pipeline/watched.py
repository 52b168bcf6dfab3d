"""A pipeline under a stopwatch on this machine's ranks: the timeline that a notebook draws.

Invariant: what is watched is what the ladder times (`ladder.PIPELINE`), with two stamps a task. Each rank prepares its
stage, runs it once to warm up, then several times watched; the shortest run is shown, the one that was disturbed least.
Ways that are to be compared take turns, so that whatever else the machine does hits all of them alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch

from labllm.models.pipeline.ladder import PIPELINE
from labllm.models.pipeline.running import pipeline, run
from labllm.models.pipeline.workload import Pipelined, inputs
from labllm.parallel import device
from labllm.parallel.pool import shared_workers
from labllm.parallel.schedules import SCHEDULES
from labllm.parallel.stopwatch import gathered
from labllm.parallel.timeline import Span, length

RUNS = 12


class Piped(NamedTuple):
    """A schedule of SCHEDULES and the layers of each stage; None cuts the model by cost."""

    schedule: str = "continuous"
    cut: Sequence[range] | None = None


def watch(workload: Pipelined, schedule: str = "continuous", cut: Sequence[range] | None = None) -> list[Span]:
    """The spans of the shortest run under a schedule of SCHEDULES, all stages on one clock; `cut` as `Piped` has it.

    Raises what `in_turn` raises.
    """
    return in_turn(workload, {schedule: Piped(schedule, cut)})[schedule]


def in_turn(workload: Pipelined, ways: Mapping[str, Piped]) -> dict[str, list[Span]]:
    """Of each way the spans of its shortest run; the ways take turns.

    Raises ValueError for an unknown schedule, a cut of another number of stages and a workload that the ladder refuses,
    and RankFailed where a rank does not come back.
    """
    for schedule, cut in ways.values():
        if schedule not in SCHEDULES:
            raise ValueError(f"a pipeline's schedule is {' or '.join(SCHEDULES)}, not {schedule!r}")
        if cut is not None and len(cut) != workload.stages:
            raise ValueError(f"{workload.stages} stages need as many ranges of layers, got {len(cut)}")
        refuses = PIPELINE[schedule].refuses
        if refuses and (reason := refuses(workload)):
            raise ValueError(reason)
    return shared_workers(workload.ranks).call(_watched, workload, dict(ways))[0]


@torch.inference_mode()
def _watched(workload: Pipelined, ways: Mapping[str, Piped]) -> dict[str, list[Span]]:
    case = inputs(workload, device().type, 0)
    prepared = {name: pipeline(schedule, case, cut) for name, (schedule, cut) in ways.items()}
    for running in prepared.values():
        run(running)
    runs: dict[str, list[list[Span]]] = {name: [] for name in ways}
    for _ in range(RUNS):
        for name, running in prepared.items():
            runs[name].append(gathered(run(running).stopwatch.spans()))
    return {name: min(every, key=length) for name, every in runs.items()}
