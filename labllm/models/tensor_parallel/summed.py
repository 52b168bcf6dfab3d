"""Operations of a rank whose sums over ranks have no kernel of their own: inside the norms, or begun by the products.

    SummedInNorms      o and down leave their summand; the norm behind them sums over ranks, adds the residual and
                       normalises in one launch
    SummedByProducts   with a single token o and down send what they compute as they compute it, and the norm stays
                       inside the product behind them

Both up to as many tokens as `labllm.parallel.sum_norm` has room for; more go through the ranks' own all-reduce.
Invariant: the same hidden states on all ranks. Where tokens are many neither gains: the bytes of a sum then count.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from labllm.fusion.skinny import skinny_linear
from labllm.models.operations import Carried, Hidden, InsideOperations
from labllm.models.tensor_parallel.extended import extended
from labllm.parallel.linear import RowParallelLinear
from labllm.parallel.sum_linear import SumLinear
from labllm.parallel.sum_norm import SumAddNorm


@dataclass(frozen=True, eq=False)
class Summand(Carried):
    """A carried hidden state whose branch is this rank's summand of it."""

    linear: RowParallelLinear

    @property
    def total(self) -> Tensor:
        """The hidden state itself, [T, H], by an all-reduce."""
        return self.linear.tensor_parallel.reduce(self.branch.clone()) + self.residual


@dataclass(frozen=True)
class SummedInNorms(InsideOperations):
    """As `InsideOperations`, the sums over ranks inside the norms."""

    sum_add_norm: SumAddNorm

    def norm(self, h: Hidden, norm: nn.RMSNorm) -> tuple[Tensor, Tensor]:
        """(norm(h), h as one tensor), both [T, H]."""
        if isinstance(h, Summand):
            return self.sum_add_norm(h.branch, h.residual, norm.weight, norm.eps)
        return super().norm(h, norm)

    def project(self, h: Hidden, norm: nn.RMSNorm, linear: nn.Module) -> tuple[Tensor, Tensor]:
        """As `Operations.project`."""
        if not isinstance(h, Summand):
            return super().project(h, norm, linear)
        x, total = self.norm(h, norm)
        return self._near(x, linear), total

    def gate(self, h: Hidden, norm: nn.RMSNorm, linear: nn.Module) -> tuple[Tensor, Tensor]:
        """As `Operations.gate`."""
        if not isinstance(h, Summand):
            return super().gate(h, norm, linear)
        x, total = self.norm(h, norm)
        if self._inside(x, linear):
            return skinny_linear(x, linear.weight, linear.bias, gated=True), total
        return self.gated_product(x, linear), total

    def join(self, x: Tensor, linear: RowParallelLinear, residual: Tensor) -> Hidden:
        """linear(x) + residual [T, H]; this rank's summand is left to the next norm."""
        if not self.sum_add_norm.takes(residual):
            return super().join(x, linear, residual)
        return Summand(self._near(x, linear.shard), residual, linear)

    def _near(self, x: Tensor, linear: nn.Module) -> Tensor:
        """linear(x), by the kernel that takes a single token where it is one."""
        return skinny_linear(x, linear.weight, linear.bias) if self._inside(x, linear) else self.product(x, linear)


@dataclass(frozen=True)
class SummedByProducts(SummedInNorms):
    """As `SummedInNorms`, and for a single token begun by the products."""

    sum_linear: SumLinear

    def join(self, x: Tensor, linear: RowParallelLinear, residual: Tensor) -> Hidden:
        """linear(x) + residual [T, H]."""
        shard = linear.shard
        if not self._inside(x, shard):
            return super().join(x, linear, residual)
        first = linear.tensor_parallel.rank == 0
        return self.sum_linear(x, shard.weight, shard.bias, residual if first else None)


def summed_in_norms(operations: InsideOperations, sum_add_norm: SumAddNorm) -> SummedInNorms:
    """The bundle whose other kernels are those of `operations`."""
    return extended(SummedInNorms, operations, "summed in norms", sum_add_norm=sum_add_norm)


def summed_by_products(
    operations: InsideOperations, sum_add_norm: SumAddNorm, sum_linear: SumLinear
) -> SummedByProducts:
    """The bundle whose other kernels are those of `operations`."""
    further = {"sum_add_norm": sum_add_norm, "sum_linear": sum_linear}
    return extended(SummedByProducts, operations, "summed by products", **further)
