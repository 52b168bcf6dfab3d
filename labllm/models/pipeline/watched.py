"""A pipeline under a stopwatch on this machine's ranks: the timeline that a notebook draws.

Invariant: what is watched is what the ladder times (`ladder.PIPELINE`), with two stamps a task. Each rank prepares its
stage, runs it once to warm up, then a few times watched; the shortest run is shown, the one that was disturbed least.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from labllm.models.pipeline.ladder import PIPELINE
from labllm.models.pipeline.running import pipeline, run
from labllm.models.pipeline.workload import Pipelined, inputs
from labllm.parallel import device
from labllm.parallel.pool import shared_workers
from labllm.parallel.schedules import SCHEDULES
from labllm.parallel.stopwatch import gathered
from labllm.parallel.timeline import Span, length

RUNS = 8


def watch(workload: Pipelined, schedule: str = "continuous", cut: Sequence[range] | None = None) -> list[Span]:
    """The spans of a run under a schedule of SCHEDULES, all stages on one clock, cut by cost or as `cut` says.

    Raises ValueError for another schedule, a cut of another number of stages and a workload that the ladder refuses,
    and RankFailed where a rank does not come back.
    """
    if schedule not in SCHEDULES:
        raise ValueError(f"a pipeline's schedule is {' or '.join(SCHEDULES)}, not {schedule!r}")
    if cut is not None and len(cut) != workload.stages:
        raise ValueError(f"{workload.stages} stages need as many ranges of layers, got {len(cut)}")
    refuses = PIPELINE[schedule].refuses
    if refuses and (reason := refuses(workload)):
        raise ValueError(reason)
    return shared_workers(workload.ranks).call(_watched, workload, schedule, cut)[0]


@torch.inference_mode()
def _watched(workload: Pipelined, schedule: str, cut: Sequence[range] | None) -> list[Span]:
    running = pipeline(schedule, inputs(workload, device().type, 0), cut)
    run(running)
    runs = (gathered(run(running).stopwatch.spans()) for _ in range(RUNS))
    return min(runs, key=length)
