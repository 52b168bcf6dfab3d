"""A pipeline under a stopwatch on this machine's ranks: the timeline that a notebook draws.

Invariant: what is watched is what the ladder times (`ladder.PIPELINE`), with two stamps a task. Each rank prepares its
stage, runs it once to warm up, then a few times watched; the shortest run is shown, the one that was disturbed least.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch

from labllm.models.pipeline.ladder import PIPELINE, pipeline
from labllm.models.pipeline.workload import Pipelined, inputs
from labllm.parallel import device
from labllm.parallel.pool import shared_workers
from labllm.parallel.schedules import SCHEDULES
from labllm.parallel.timeline import Span, length

RUNS = 3


def watch(workload: Pipelined, rung: str = "continuous", cut: Sequence[range] | None = None) -> list[Span]:
    """The spans of a run of `rung`, all stages on one clock, with the layers cut by cost or as `cut` says.

    Raises KeyError for a rung that the ladder has not, ValueError for a cut of one that has no stages or of as many
    stages as the workload has not, and RankFailed where a rank does not come back.
    """
    PIPELINE[rung]
    if cut is not None and (rung not in SCHEDULES or len(cut) != workload.stages):
        raise ValueError(f"a cut is for {' and '.join(SCHEDULES)}, with {workload.stages} stages; got {len(cut)}")
    return shared_workers(workload.ranks).call(_watched, workload, rung, cut)[0]


@torch.inference_mode()
def _watched(workload: Pipelined, rung: str, cut: Sequence[range] | None) -> list[Span]:
    prepare = PIPELINE[rung].prepare if cut is None else partial(pipeline, SCHEDULES[rung], cut=cut)
    running = prepare(inputs(workload, device().type, 0))
    running.call()
    return min((running.timeline() for _ in range(RUNS)), key=length)
