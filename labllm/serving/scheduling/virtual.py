"""What the scheduling ladders share: a model on GPUs that need not be here, and rungs that differ in their config.

Every rung is an `EngineConfig`; scheduler, pool and engine are the product's own, and a step takes what
`labllm.serving.step_time` says with the efficiencies that shipped records give. All steps are taken to run from graphs,
as large servers capture them; only the fleet LAUNCHED pays what a step with prompts costs at least where the host
launches it kernel by kernel, as this project's engine does. Invariant: the same workload gives the same figures
everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from labllm.bench import Ladder, Rung, axis
from labllm.bench.virtual import VirtualClock
from labllm.devices import KNOWN
from labllm.models.shapes import SHAPES
from labllm.roofline import Cost
from labllm.serving import replay, simulation, step_time
from labllm.serving.calibrated import calibrated
from labllm.serving.config import EngineConfig
from labllm.serving.replay import Run
from labllm.serving.rungs import Served, longest
from labllm.serving.scheduling.felt import Figures
from labllm.serving.simulation import simulate
from labllm.serving.step_time import StepTime
from labllm.serving.traces import Trace

SMALL, LARGE, OLDER = "Llama-3.1-8B, one H200", "Llama-3.1-70B, 4 H200", "Llama-3.1-8B, one A100 80GB"
LAUNCHED = "Llama-3.1-8B, one H200, launched by kernel"
FLEETS = {
    SMALL: ("Llama-3.1-8B", "H200", 1),
    LARGE: ("Llama-3.1-70B", "H200", 4),
    OLDER: ("Llama-3.1-8B", "A100 80GB", 1),
    LAUNCHED: ("Llama-3.1-8B", "H200", 1),
}
GPUS = {spec.name: spec for spec in KNOWN}
Config = Callable[[Any], EngineConfig]


class Task(NamedTuple):
    """A workload, its trace, and what a step takes there."""

    workload: Any
    trace: Trace
    step_time: StepTime


def fleet() -> Any:
    """The workload field that names a model and its GPUs."""
    return axis(SMALL, *FLEETS, label="model and GPUs")


def fleet_step_time(name: str) -> StepTime:
    """What a step takes on a fleet of FLEETS. Raises KeyError for another name."""
    model, gpu, gpus = FLEETS[name]
    made = calibrated(StepTime(SHAPES[model], GPUS[gpu], tensor_parallel_size=gpus))
    return made if name == LAUNCHED else replace(made, launch=0.0)


def serve(task: Task, config: EngineConfig) -> Run:
    """The whole trace under `config`, sized for its longest request; a whole prompt fits a step beside all decodes."""
    length = longest(task.trace)
    tokens = config.max_num_batched_tokens
    if tokens is not None and not config.enable_chunked_prefill:
        config = config.but(max_num_batched_tokens=max(tokens, length + config.max_num_seqs))
    return simulate(task.trace, config.but(max_model_len=length), task.step_time)


def virtual_ladder(
    name: str,
    title: str,
    workload: type,
    trace_of: Callable[[Any, int], Trace],
    rungs: Mapping[str, tuple[str, Config]],
    sizes: Mapping[str, tuple[Any, ...]],
    figures: Callable[[Any, Run], Figures],
) -> Ladder:
    """A ladder over `workload`, which has a field `fleet`; `rungs` maps names to (about, config of a workload)."""

    def rung(name: str, about: str, config: Config) -> Rung:
        def run(task: Task) -> Run:
            return serve(task, config(task.workload))

        return Rung(name, run, about=about, sources=(config, serve, replay, simulation, step_time))

    return Ladder(
        name=name,
        title=title,
        workload=workload,
        inputs=lambda w, device, seed: Task(w, trace_of(w, seed), fleet_step_time(w.fleet)),
        cost=lambda w: Cost(),
        reference=lambda task, out: ([r.max_tokens for r in task.trace], 0.0),
        rungs=tuple(rung(name, *told) for name, told in rungs.items()),
        sizes=sizes,
        compare=Served(lambda dtype: 0.0),
        clock=VirtualClock(),
        metrics=lambda w, out, seconds: out.metrics.named() | figures(w, out),
    )


def run(ladder: Ladder, workload: Any, rung: str, seed: int = 0) -> Run:
    """One rung's run itself, where a record's figures are not enough. Raises KeyError for an unknown rung."""
    return ladder[rung].run(ladder.inputs(workload, "cpu", seed))
