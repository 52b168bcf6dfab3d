"""What a launch costs: the same additions one by one, replayed from a CUDA graph, and as one launch.

A number is raised by 1 so many times. Arithmetic and traffic of small tensors take next to no time, so what grows with
the count is the price of an operator: PyTorch's way from Python to a kernel on a CPU, and that of the launch behind it
on a GPU. A CUDA graph records the launches once and replays them without Python and PyTorch; one launch that adds the
count pays once. Timed by the wall, since the price lies outside the kernels, where their own clock does not look.

Loses its meaning where the tensor is so large that each pass over memory takes longer than its launch.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from labllm.bench import Ladder, Record, RunClock, Rung, axis
from labllm.roofline import Cost

LAUNCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
ELEMENTS = (1, 1024, 16384, 262144, 1048576)


@dataclass(frozen=True)
class Additions:
    """`launches` additions to each of `elements` numbers in float32."""

    launches: int = axis(64, *LAUNCHES, label="additions")
    elements: int = axis(1, *ELEMENTS, label="elements")


class Numbers(NamedTuple):
    """x [elements] and how often 1 is added."""

    x: Tensor
    times: int


class Captured(NamedTuple):
    """A graph, the tensor that it reads (a graph keeps addresses, not tensors) and the one that it writes."""

    graph: torch.cuda.CUDAGraph
    x: Tensor
    out: Tensor


def one_by_one(numbers: Numbers) -> Tensor:
    """x + 1 + 1 + ...: a launch for each."""
    out = numbers.x
    for _ in range(numbers.times):
        out = out + 1.0
    return out.unsqueeze(1)


def one_launch(numbers: Numbers) -> Tensor:
    """x + times."""
    return (numbers.x + float(numbers.times)).unsqueeze(1)


def captured(numbers: Numbers) -> Captured:
    """The launches of `one_by_one`, recorded on a side stream after a first run, as CUDA graphs ask."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        one_by_one(numbers)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = one_by_one(numbers)
    return Captured(graph, numbers.x, out)


def replayed(state: Captured) -> Tensor:
    """One call for all launches of the graph."""
    state.graph.replay()
    return state.out


def per_launch(records: Iterable[Record], rung: str) -> float | None:
    """Seconds that one more launch costs on `rung`: the slope from few to many; None without two timed records."""
    timed = sorted((r.workload["launches"], r.seconds) for r in records if r.rung == rung and r.seconds)
    if len({count for count, _ in timed}) < 2:
        return None
    (few, quick), (many, slow) = timed[0], timed[-1]
    return (slow - quick) / (many - few)


def _inputs(w: Additions, device: str, seed: int) -> Numbers:
    return Numbers(torch.rand(w.elements, generator=torch.Generator().manual_seed(seed)).to(device), w.launches)


def _reference(numbers: Numbers, rows: Tensor | None) -> Tensor:
    x = numbers.x if rows is None else numbers.x[rows]
    return x.double().unsqueeze(1) + numbers.times


def _cost(w: Additions) -> Cost:
    return Cost(float(w.launches * w.elements), 8.0 * w.elements)


def _passes(w: Additions) -> Cost:
    return Cost(float(w.launches * w.elements), 8.0 * w.launches * w.elements)


OVERHEAD = Ladder(
    name="launch-overhead",
    title="The price of a launch",
    workload=Additions,
    inputs=_inputs,
    input_bytes=lambda w: 4.0 * w.elements,
    cost=_cost,
    reference=_reference,
    rungs=(
        Rung("one by one", one_by_one, about="Python, PyTorch and a launch for each addition", moved=_passes),
        Rung(
            "cuda graph",
            replayed,
            captured,
            about="the same launches, recorded once: one call replays all",
            needs=("cuda",),
            moved=_passes,
            sources=(one_by_one,),
        ),
        Rung("one launch", one_launch, about="one launch for the whole chain"),
    ),
    clock=RunClock(budget=0.1, most=50),
    sizes={
        "fast": tuple(Additions(n, 1) for n in (1, 16)),
        "small": tuple(Additions(n, 1) for n in LAUNCHES),
        "full": (*(Additions(n, 1) for n in LAUNCHES), *(Additions(n, 1048576) for n in (1, 16, 256))),
    },
)
