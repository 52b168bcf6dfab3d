"""Ladders of messages: what an all-reduce, an all-gather and a send cost by their size, between ranks of this machine.

A decode step of a tensor-parallel model sums some kilobytes twice a layer, a prefill some dozens of megabytes: at one
end only the number of steps counts, at the other only the bytes. `communication.fit` turns a curve into two constants.

Compulsory are the bytes that must leave a rank (`communication.wire_bytes`), so a record's bandwidth is what the link
carried, and the roof is the link. Data are warm and a library gets a fresh copy of them, as a layer's product is in
use: its messages one behind the other, nothing computed between them, would say nothing about a step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from labllm.bench import Ladder, Rung, axis, torch_dtype
from labllm.parallel.clock import RankClock
from labllm.parallel.communication import wire_bytes
from labllm.parallel.group import rank, world
from labllm.parallel.on_ranks import on_ranks
from labllm.parallel.push import PUSH_KERNELS, Push, push, two_shots_pay
from labllm.parallel.symmetric import can_share, one_shot, two_shot
from labllm.parallel.tensor import TensorParallel
from labllm.roofline import Cost

KIB, MIB = 2**10, 2**20
SIZES = tuple(KIB * 4**i for i in range(10))  # 1 KiB to 256 MiB
ROW = 256


@dataclass(frozen=True)
class Message:
    """A tensor of `size` bytes among `ranks`: what each brings to a sum or sends, what all have after a gather."""

    size: int = axis(64 * KIB, *SIZES, unit="bytes", label="message")
    ranks: int = axis(2, 2, 4, 8)
    dtype: str = axis("bfloat16", "float32", "float16", "bfloat16")


def _tensor(w: Message, device: str, seed: int, size: int) -> Tensor:
    """Random numbers of this rank, [rows, D]; sums of many of them stay small."""
    generator = torch.Generator(device).manual_seed(1000 * seed + rank())
    count = max(1, size // torch_dtype(w).itemsize)
    x = torch.randn(count, generator=generator, device=device)
    return x.to(torch_dtype(w)).view(-1, min(count, ROW))


def _whole(w: Message, device: str, seed: int) -> Tensor:
    return _tensor(w, device, seed, w.size)


def _part(w: Message, device: str, seed: int) -> Tensor:
    return _tensor(w, device, seed, w.size // w.ranks)


def _everyones(x: Tensor, rows: Tensor | None) -> list[Tensor]:
    """These rows of every rank's x, in float64."""
    mine = (x if rows is None else x[rows]).double().contiguous()
    every = [torch.empty_like(mine) for _ in range(world())]
    dist.all_gather(every, mine)
    return every


def _sum(x: Tensor, rows: Tensor | None) -> Tensor:
    return torch.stack(_everyones(x, rows)).sum(0)


def _side_by_side(x: Tensor, rows: Tensor | None) -> Tensor:
    whole = torch.cat(_everyones(x, None))
    return whole if rows is None else whole[rows]


def _from_before(x: Tensor, rows: Tensor | None) -> Tensor:
    return _everyones(x, rows)[rank() - 1]


Strategy = Callable[[Tensor], Tensor]


def _with(strategy: Callable[[], Strategy]) -> Callable[[Tensor], tuple[Strategy, Tensor]]:
    """prepare: the strategy with its memory, made beforehand by a first sum."""

    def prepare(x: Tensor) -> tuple[Strategy, Tensor]:
        made = strategy()
        made(x)
        return made, x

    return prepare


def _apply(state: tuple[Strategy, Tensor]) -> Tensor:
    made, x = state
    return made(x)


def _distributed(x: Tensor) -> Tensor:
    total = x.clone()
    dist.all_reduce(total)
    return total


def _all_gather(x: Tensor) -> Tensor:
    return TensorParallel.of().gather(x.clone())


def _all_gather_pushed(state: tuple[Push, Tensor]) -> Tensor:
    made, x = state
    return made.gather(x).view(-1, x.shape[-1])


def _shift(state: tuple[Tensor, Tensor]) -> Tensor:
    """x to the next rank, and the one of the rank before into out."""
    x, out = state
    x = x.clone()
    ahead, behind = (rank() + 1) % world(), (rank() - 1) % world()
    for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, x, ahead), dist.P2POp(dist.irecv, out, behind)]):
        work.wait()
    return out


def _no_peer_access(w: Message) -> str | None:
    return can_share().reason or None


def _pushed(w: Message) -> Cost:
    way = "all-reduce" if two_shots_pay(w.size, w.ranks) else "one-shot"
    return Cost(0, wire_bytes(way, w.size, w.ranks))


def _leaves(operation: str) -> Callable[[Message], Cost]:
    return lambda w: Cost(0, wire_bytes(operation, w.size, w.ranks))


def _sizes(small: int, large: int) -> dict[str, tuple[Message, ...]]:
    def over(ranks: int, most: int, dtype: str) -> tuple[Message, ...]:
        return tuple(Message(size, ranks, dtype) for size in SIZES if size <= most)

    return {
        "fast": (Message(KIB, 2, "float32"), Message(64 * KIB, 2, "float32")),
        "small": over(2, small, "float32"),
        "full": over(2, large, "bfloat16"),
        "four": over(2, large, "bfloat16") + over(4, large, "bfloat16"),
        "eight": tuple(m for ranks in (2, 4, 8) for m in over(ranks, large, "bfloat16")),
    }


def _ladder(name: str, title: str, operation: str, inputs: Any, reference: Any, *rungs: Rung, copies: int) -> Ladder:
    return Ladder(
        name=name,
        title=title,
        workload=Message,
        inputs=inputs,
        input_bytes=lambda w: float(copies * w.size),
        cost=_leaves(operation),
        reference=reference,
        rungs=rungs,
        sizes=_sizes(4 * MIB, 256 * MIB),
        clock=RankClock(budget=0.15, cold=False),
        roof=lambda roof: roof.of("link"),
        ranks=on_ranks,
    )


ALL_REDUCE = _ladder(
    "all-reduce",
    "All-reduce: the sum over ranks, on every rank",
    "all-reduce",
    _whole,
    _sum,
    Rung(
        "torch.distributed",
        _distributed,
        about="NCCL between GPUs, gloo between CPUs: right for every size, each message through several steps",
    ),
    Rung(
        "two-shot",
        _apply,
        _with(two_shot),
        about="peers' memory is read: no copies between buffers of a library, two barriers",
        needs=("cuda",),
        refuses=_no_peer_access,
    ),
    Rung(
        "one-shot",
        _apply,
        _with(one_shot),
        about="every rank adds all numbers itself: one step instead of two, more bytes",
        needs=("cuda",),
        refuses=_no_peer_access,
        moved=_leaves("one-shot"),
    ),
    Rung(
        "push",
        _apply,
        _with(push),
        about="numbers are written into the peers' memory and are their own flag: no barrier, one crossing or two",
        needs=("triton",),
        refuses=_no_peer_access,
        moved=_pushed,
        sources=tuple(f"labllm.kernels.{name}" for name in PUSH_KERNELS),
    ),
    copies=4,
)

ALL_GATHER = _ladder(
    "all-gather",
    "All-gather: everyone's part, on every rank",
    "all-gather",
    _part,
    _side_by_side,
    Rung("torch.distributed", _all_gather, about="NCCL between GPUs, gloo between CPUs"),
    Rung(
        "push",
        _all_gather_pushed,
        _with(push),
        about="every rank writes its part into the peers' memory: no barrier, one crossing",
        needs=("triton",),
        refuses=_no_peer_access,
        sources=("labllm.kernels.one_shot",),
    ),
    copies=3,
)

SEND = _ladder(
    "send",
    "Send: every rank to the next, all at once",
    "send",
    _whole,
    _from_before,
    Rung(
        "torch.distributed",
        _shift,
        lambda x: (x, torch.empty_like(x)),
        about="isend and irecv in one batch, as between the stages of a pipeline",
    ),
    copies=3,
)
