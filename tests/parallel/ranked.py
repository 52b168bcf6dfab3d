"""A ladder whose rungs run on ranks and behave in every way that they can there. Importable by the ranks."""

from __future__ import annotations

import os
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from labllm.bench import CannotRun, Ladder, Rung, axis
from labllm.parallel import rank, world
from labllm.parallel.clock import RankClock
from labllm.parallel.on_ranks import on_ranks
from labllm.roofline import Cost


@dataclass(frozen=True)
class Sum:
    """Add `n` numbers over `ranks`."""

    ranks: int = axis(2, 1, 2, 4, 64)
    n: int = axis(64, 64, 4096)
    dtype: str = axis("float32", "float32", "float64")


def inputs(w: Sum, device: str, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(1000 * seed + rank())
    return torch.randn(w.n, 1, generator=generator, dtype=getattr(torch, w.dtype)).to(device)


def reference(x: Tensor, rows: Tensor | None) -> Tensor:
    every = [torch.empty_like(x) for _ in range(world())]
    dist.all_gather(every, x)
    total = torch.stack(every).double().sum(0)
    return total if rows is None else total[rows]


def honest(x: Tensor) -> Tensor:
    total = x.clone()
    dist.all_reduce(total)
    return total


def wrong_on_one(x: Tensor) -> Tensor:
    return honest(x) + rank()


def raises_everywhere(x: Tensor) -> Tensor:
    raise KeyError("lost")


def raises_on_one(x: Tensor) -> Tensor:
    if rank() == 1:
        raise KeyError("lost on one")
    return honest(x)


def memory_gone_on_one(x: Tensor) -> Tensor:
    total = honest(x)
    if rank() == 1:
        raise torch.OutOfMemoryError("tried to allocate 1 TB")
    return total


def dies_on_one(x: Tensor) -> Tensor:
    if rank() == 1:
        os._exit(7)
    return honest(x)


def no_kernel(x: Tensor) -> Tensor:
    raise CannotRun("no kernel for odd sizes")


def fails_when_timed(state: list[Tensor]) -> Tensor:
    """The check runs it twice; the third call is the clock's."""
    state.append(state[0])
    if len(state) > 3 and rank() == 0:
        raise KeyError("lost in the clock")
    return honest(state[0])


RUNGS = (
    Rung("honest", honest),
    Rung("wrong on one", wrong_on_one),
    Rung("raises everywhere", raises_everywhere),
    Rung("raises on one", raises_on_one),
    Rung("after that", lambda x: honest(x)),
    Rung("memory gone on one", memory_gone_on_one),
    Rung("dies on one", dies_on_one),
    Rung("no kernel", no_kernel),
    Rung("fails when timed", fails_when_timed, lambda x: _KEPT.setdefault("state", [x])),
    Rung("at last", honest),
)
_KEPT: dict[str, list[Tensor]] = {}

LADDER = Ladder(
    name="ranked toy",
    title="Sums",
    workload=Sum,
    inputs=inputs,
    cost=lambda w: Cost(w.n, 8 * w.n),
    reference=reference,
    rungs=RUNGS,
    sizes={"fast": (Sum(),)},
    metrics=lambda w, out, seconds: {"first": (float(out[0]), "")},
    clock=RankClock(budget=0.02),
    ranks=on_ranks,
)
