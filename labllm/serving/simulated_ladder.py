"""The simulated ladder: the same four ways to batch, for models and GPUs that are not here. Its clock is virtual.

Requests arrive at a rate or all at once; the engine's own scheduler decides, and each step takes what
`labllm.serving.step_time` says of the model on these GPUs. Efficiencies are those that the shipped records of an H200
give (`labllm.serving.calibrated`), an assumption for any other GPU. Invariant: the same workload gives the same figures
everywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from labllm.bench import Ladder, Rung, axis
from labllm.bench.virtual import VirtualClock
from labllm.devices import KNOWN
from labllm.models.shapes import SHAPES
from labllm.roofline import Cost
from labllm.serving import replay, rungs, simulation, step_time
from labllm.serving.arrivals import ARRIVALS, bimodal, lognormal
from labllm.serving.calibrated import calibrated
from labllm.serving.config import RUNGS
from labllm.serving.ladder import ABOUT, LONG, lengths
from labllm.serving.replay import Run
from labllm.serving.rungs import Served, longest
from labllm.serving.simulation import simulate
from labllm.serving.step_time import StepTime
from labllm.serving.traces import Trace, trace

GPUS = {spec.name: spec for spec in KNOWN}
MEAN = 200  # tokens of an answer


@dataclass(frozen=True)
class Fleet:
    """`requests` for `model` on `gpus` cards of one kind, bf16; a quarter of the answers `ratio` times as long.

    The rate means nothing where all come at once.
    """

    ratio: int = axis(16, 1, 2, 4, 8, 16, 32, unit="x", label="longest over shortest answer")
    max_num_seqs: int = axis(64, 8, 16, 32, 64, 128, 256, 512, unit="seats", label="max_num_seqs")
    prompt: int = axis(512, 128, 512, 2048, 8192, unit="tokens", label="prompt, on average")
    arrivals: str = axis("at once", *ARRIVALS, label="arrivals")
    rate: int = axis(8, 1, 2, 4, 8, 16, 32, unit="requests/s", label="rate")
    requests: int = axis(256, 64, 256, 1024, unit="requests", label="requests")
    model: str = axis("Llama-3.1-70B", "Llama-3.1-8B", "Llama-3.1-70B", "Qwen3-8B")
    gpu: str = axis("H200", "A100 80GB", "H100", "H200", "B200", label="GPU")
    gpus: int = axis(4, 1, 2, 4, 8, unit="GPUs", label="GPUs")


class Task(NamedTuple):
    """A trace, and what a step of the model takes there."""

    fleet: Fleet
    trace: Trace
    step_time: StepTime


def fleet_trace(w: Fleet, seed: int = 0) -> Trace:
    """Prompts of a long-tailed length, answers of two lengths with a mean of about MEAN tokens."""
    answers = bimodal(*lengths(MEAN, w.ratio), LONG)
    prompts = lognormal(w.prompt, 0.5, 3 * w.prompt)
    return trace(w.requests, prompts, answers, ARRIVALS[w.arrivals](w.rate), seed)


def fleet_step_time(w: Fleet) -> StepTime:
    """What a step takes. Raises ValueError where the model does not fit the GPUs."""
    made = calibrated(StepTime(SHAPES[w.model], GPUS[w.gpu], tensor_parallel_size=w.gpus))
    made.num_blocks(16)
    return made


def serve(task: Task, name: str) -> Run:
    """The whole trace under the rung's config."""
    sizes = {"max_num_seqs": task.fleet.max_num_seqs, "max_model_len": longest(task.trace)}
    return simulate(task.trace, RUNGS[name].but(**sizes), task.step_time)


def _refuses(w: Fleet) -> str | None:
    try:
        fleet_step_time(w)
    except ValueError as error:
        return str(error)
    return None


def _rung(name: str) -> Rung:
    run: Callable[[Task], Run] = partial(serve, name=name)
    return Rung(name, run, about=ABOUT[name], refuses=_refuses, sources=(replay, rungs, simulation, step_time))


def _reference(task: Task, out: Any) -> tuple[list[int], float]:
    return [r.max_tokens for r in task.trace], 0.0


SIMULATED = Ladder(
    name="simulated-batching",
    title="A model that is not here serves a trace, batched in four ways",
    workload=Fleet,
    inputs=lambda w, device, seed: Task(w, fleet_trace(w, seed), fleet_step_time(w)),
    cost=lambda w: Cost(),
    reference=_reference,
    rungs=tuple(_rung(name) for name in RUNGS),
    sizes={
        "fast": (Fleet(ratio=4, requests=64), Fleet(ratio=16, requests=64)),
        "small": tuple(Fleet(ratio=ratio) for ratio in (1, 4, 16)),
        "full": (
            *(Fleet(ratio=ratio) for ratio in (1, 2, 4, 8, 16, 32)),
            *(Fleet(arrivals="Poisson", rate=rate) for rate in (1, 2, 4, 8, 16, 32)),
        ),
    },
    compare=Served(lambda dtype: 0.0),
    clock=VirtualClock(),
    metrics=lambda w, out, seconds: out.metrics.named(),
)
