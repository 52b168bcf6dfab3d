"""The ring of a pipeline's stages: hidden states go from each to the next, ids from the last back to the first.

Each edge of the ring is a process group of its own, used in one direction only. A send must not wait for a receive
that has nothing to do with it, and NCCL runs whatever is asked of one group in the order in which it was asked:
on one common group a first stage that waits for ids and a last one that waits for a hidden state may block each other.

Cost: a communicator and a first message an edge. Invariant: what is sent on an edge is received in the same order. It
loses to collectives where one rank has something for all: an edge carries from one to one.
"""

from __future__ import annotations

import os
from collections import deque
from dataclasses import dataclass
from functools import cache
from typing import Protocol

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh

from labllm.parallel.group import device

# NCCL warns of what an edge is for: messages of one group, one after another
SERIAL = "TORCH_NCCL_SHOW_EAGER_INIT_P2P_SERIALIZATION_WARNING"


class Waits(Protocol):
    """Something sent whose tensor must stay as it is until `wait` has returned (on a GPU: in stream order)."""

    def wait(self) -> object: ...


class Edge(Protocol):
    """One way from a stage to the next."""

    def send(self, x: Tensor) -> Waits:
        """Start sending x, contiguous, and go on."""
        ...

    def receive(self, into: Tensor) -> Tensor:
        """Fill `into` with what was sent next, of the same size; work queued behind it sees it filled."""
        ...


@dataclass(frozen=True)
class PairEdge:
    """An edge to or from the rank `peer` (its number in the whole world), over a group of these two."""

    group: dist.ProcessGroup
    peer: int

    def send(self, x: Tensor) -> Waits:
        """As `Edge.send`."""
        return dist.isend(x, self.peer, self.group)

    def receive(self, into: Tensor) -> Tensor:
        """As `Edge.receive`."""
        dist.irecv(into, self.peer, self.group).wait()
        return into


class _Sent:
    def wait(self) -> None:
        """Nothing to wait for."""


class OwnEdge:
    """The edge of a pipeline of one stage, from it to itself."""

    def __init__(self) -> None:
        self._sent: deque[Tensor] = deque()

    def send(self, x: Tensor) -> Waits:
        """As `Edge.send`; x is copied at once."""
        self._sent.append(x.clone())
        return _Sent()

    def receive(self, into: Tensor) -> Tensor:
        """As `Edge.receive`."""
        return into.copy_(self._sent.popleft())


@dataclass(frozen=True)
class Ring:
    """This rank's place: stage number `stage` of `stages`, with the edges to the stages before and after it."""

    stage: int
    stages: int
    before: Edge
    after: Edge

    @classmethod
    def alone(cls) -> Ring:
        """A pipeline of one stage, for which no process group is needed."""
        edge = OwnEdge()
        return cls(0, 1, edge, edge)

    @classmethod
    def of(cls, mesh: DeviceMesh, dim: str = "pp") -> Ring:
        """This rank's place along `dim` of a mesh. Every rank of the world must call it, for it makes process groups.

        Raises KeyError where the mesh has no such dimension.
        """
        names = mesh.mesh_dim_names or ()
        if dim not in names:
            raise KeyError(f"The mesh has no dimension {dim!r}; it has {', '.join(names) or 'no named one'}.")
        lines = mesh.mesh.movedim(names.index(dim), -1).flatten(0, -2)
        line = next(tuple(line) for line in lines.tolist() if dist.get_rank() in line)
        if len(line) == 1:
            return cls.alone()
        edges = _edges(dist.group.WORLD, tuple(map(tuple, lines.tolist())))
        stage = line.index(dist.get_rank())
        before, after = line[stage - 1], line[(stage + 1) % len(line)]
        here = line[stage]
        return cls(stage, len(line), PairEdge(edges[before, here], before), PairEdge(edges[here, after], after))


@cache  # a communicator is dear, and every run on the same ranks can use it again
def _edges(world: dist.ProcessGroup, lines: tuple[tuple[int, ...], ...]) -> dict[tuple[int, int], dist.ProcessGroup]:
    """A group for each edge of each line of ranks, by (sender, receiver); made by all ranks of `world` together.

    A first message goes over each: NCCL connects two ranks when they first talk, and makes the sender wait until the
    receiver does, which may be long after a stage has turned to other work.
    """
    os.environ.setdefault(SERIAL, "false")
    edges = {}
    for pair in [(line[i - 1], line[i]) for line in lines for i in range(len(line))]:
        edges[pair] = dist.new_group(list(pair))
        if dist.get_rank() in pair:
            sends = dist.get_rank() == pair[0]
            greeting = torch.zeros(1, device=device())
            (dist.send if sends else dist.recv)(greeting, pair[sends], edges[pair])
    return edges
