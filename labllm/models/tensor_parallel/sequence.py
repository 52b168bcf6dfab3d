"""Sequence parallelism: between the products of a layer each rank keeps 1 / size of the tokens.

    all-reduce       every rank sums all T rows of a block, then all do the same residual add and norm
    reduce-scatter   a rank sums its T / size rows, adds and normalises those, and an all-gather gives all of them to
    + all-gather     the next products: the same bytes as the all-reduce, and the work between done once

Korthikanti et al. 2022, arXiv:2205.05198. As a bundle of `Operations`: `join` scatters, `norm` gathers. Tokens that the
ranks do not divide are filled up with zeros. It gains where tokens are many, in a prefill: fewer passes over
activations, and 1 / size of the memory for them. It loses in decode, where two collectives wait where one did.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor, nn

from labllm.models.operations import Carried, Hidden, Operations
from labllm.models.tensor_parallel.extended import extended
from labllm.parallel.linear import RowParallelLinear
from labllm.parallel.tensor import TensorParallel


@dataclass(frozen=True, eq=False)
class Scattered(Carried):
    """A carried hidden state of which this rank has its rows: of `tokens`, filled up to a multiple of the ranks."""

    tokens: int
    tensor_parallel: TensorParallel

    @property
    def total(self) -> Tensor:
        """The hidden state of all tokens, [T, H]."""
        return self.tensor_parallel.gather(self.branch + self.residual)[: self.tokens]


@dataclass(frozen=True)
class SequenceParallel(Operations):
    """As the operations from which it is made (`sequence_parallel`), between projections on this rank's tokens."""

    tensor_parallel: TensorParallel

    def norm(self, h: Hidden, norm: nn.RMSNorm) -> tuple[Tensor, Tensor]:
        """(norm(h) [T, H] of all tokens, this rank's rows of h)."""
        if not isinstance(h, Scattered):  # what the embedding gave: every rank has it
            x, total = super().norm(h, norm)
            return x, self._mine(total)
        x, total = super().norm(h, norm)
        return self.tensor_parallel.gather(x)[: h.tokens], total

    def join(self, x: Tensor, linear: RowParallelLinear, residual: Tensor) -> Hidden:
        """linear(x) + residual, x [T, K / size] of all tokens, the residual and the answer this rank's rows."""
        branch = self.tensor_parallel.reduce_scatter(self._filled(linear.partial(x)))
        return Scattered(branch, residual, len(x), self.tensor_parallel)

    def select(self, x: Tensor, residual: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Rows [N] of x, and this rank's of those rows of the residual."""
        return x[rows], self._mine(self.tensor_parallel.gather(residual)[rows])

    def _filled(self, x: Tensor) -> Tensor:
        missing = -len(x) % self.tensor_parallel.size
        return F.pad(x, (0, 0, 0, missing)) if missing else x

    def _mine(self, x: Tensor) -> Tensor:
        return self._filled(x).chunk(self.tensor_parallel.size)[self.tensor_parallel.rank]


def sequence_parallel(operations: Operations, tensor_parallel: TensorParallel) -> SequenceParallel:
    """The bundle whose kernels are those of `operations` and whose ranks are those of `tensor_parallel`."""
    return extended(SequenceParallel, operations, "sequence parallel", tensor_parallel=tensor_parallel)
