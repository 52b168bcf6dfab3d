"""What a layer does around its GEMMs and its attention, as a bundle with a name: the same formulas, unfused and fused.

    add_norm   s = x + residual and RMSNorm(s): what stands before the projections
    gated      SiLU(gate) * up: what stands between the MLP's GEMMs
    attend     QK-norm, RoPE on q and k, keys and values to the cache, attention

EAGER writes each as torch's own operations, KERNELS launches one Triton kernel for each (`labllm.fusion`), INSIDE also
draws norm, gate and residual add into the projections of a single token, and the gate into that of some tens; its norms
start early (kernels/early_start.py). FUSED is INSIDE where Triton compiles and EAGER elsewhere: what a model is given
unless it is to be slow on purpose. A further variant is `dataclasses.replace` of one operation, under another name.

Cost: EAGER moves what its launches write and read again. Invariant: all bundles compute the same, within the dtype's
rounding. Fusing does nothing where the GEMMs are bound by their arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial, wraps
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labllm import fusion
from labllm.attention.attend import Attend, CacheAttend
from labllm.cache.step import Step
from labllm.fusion import eager
from labllm.fusion.few import few_linear, is_few
from labllm.fusion.skinny import skinny_linear
from labllm.hardware import triton_mode
from labllm.models.rope import Angles
from labllm.parallel.linear import RowParallelLinear
from labllm.parallel.tensor import TensorParallel

KERNEL_DTYPES = (torch.float32, torch.float16, torch.bfloat16)
QKNorms = tuple[nn.RMSNorm, nn.RMSNorm]


@dataclass(frozen=True, eq=False)
class Carried:
    """A hidden state as the two tensors [T, H] whose sum it is: what the last part gave, and what was there before."""

    branch: Tensor
    residual: Tensor

    def __getitem__(self, rows: Tensor) -> Carried:
        """The same rows of both."""
        return Carried(self.branch[rows], self.residual[rows])

    @property
    def total(self) -> Tensor:
        """The hidden state itself, [T, H]."""
        return self.branch + self.residual


Hidden = Tensor | Carried
"""A hidden state [T, H]: a tensor between plain layers, perhaps carried in two between packed ones."""


@dataclass(frozen=True)
class Operations:
    """A named way to compute what surrounds the GEMMs of a layer.

    add_norm(x [T, H], residual [T, H], weight [H], eps) -> (RMSNorm(x + residual) * weight, x + residual)
    gated(gate_up [T, 2 I], gates first) -> SiLU(gate) * up [T, I]
    attend(q [T, Hq, D], k, v [T, Hkv, D], QK-norms or None, angles, attend, layer, step, window) -> [T, Hq, D];
        q, k, v may be slices of one tensor
    """

    name: str
    add_norm: Callable[[Tensor, Tensor, Tensor, float], tuple[Tensor, Tensor]]
    gated: Callable[[Tensor], Tensor]
    attend: Callable[[Tensor, Tensor, Tensor, QKNorms | None, Angles, Attend, int, Step, int | None], Tensor]

    def norm(self, h: Hidden, norm: nn.RMSNorm) -> tuple[Tensor, Tensor]:
        """(norm(h), h as one tensor), both [T, H]."""
        if isinstance(h, Carried):
            return self.add_norm(h.branch, h.residual, norm.weight, norm.eps)
        return F.rms_norm(h, norm.normalized_shape, norm.weight, norm.eps), h

    def project(self, h: Hidden, norm: nn.RMSNorm, linear: nn.Module) -> tuple[Tensor, Tensor]:
        """(linear(norm(h)) [T, N], h as one tensor [T, H])."""
        x, total = self.norm(h, norm)
        return self.product(x, linear), total

    def gate(self, h: Hidden, norm: nn.RMSNorm, linear: nn.Module) -> tuple[Tensor, Tensor]:
        """(SiLU(gate) * up [T, I] of gate | up = linear(norm(h)), h as one tensor [T, H])."""
        x, total = self.norm(h, norm)
        return self.gated_product(x, linear), total

    def join(self, x: Tensor, linear: nn.Module, residual: Tensor) -> Hidden:
        """linear(x) + residual [T, H]; here the sum is left to the next norm."""
        return Carried(self.product(x, linear), residual)

    def product(self, x: Tensor, linear: nn.Module) -> Tensor:
        """linear(x) [T, N]."""
        return linear(x)

    def gated_product(self, x: Tensor, linear: nn.Module) -> Tensor:
        """SiLU(gate) * up [T, I] of gate | up = linear(x)."""
        return self.gated(linear(x))

    def select(self, x: Tensor, residual: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Rows [N] of x [T, ...] and of the residual that goes with it."""
        return x[rows], residual[rows]


@dataclass(frozen=True)
class InsideOperations(Operations):
    """As `Operations`, with norm, gate and residual add inside the projections of a single token, and the gate inside
    that of some tens.

    takes(x): whether the kernels may have x. Besides torch's own Linear a projection is asked that offers `inside(x)`,
    as quantised ones do; others stay as they are.
    """

    takes: Callable[[Tensor], bool]

    def project(self, h: Hidden, norm: nn.RMSNorm, linear: nn.Module) -> tuple[Tensor, Tensor]:
        """As `Operations.project`."""
        if (product := self._with_neighbours(h, linear)) is None:
            return super().project(h, norm, linear)
        return product(h, gain=norm.weight, eps=norm.eps), h

    def gate(self, h: Hidden, norm: nn.RMSNorm, linear: nn.Module) -> tuple[Tensor, Tensor]:
        """As `Operations.gate`."""
        if (product := self._with_neighbours(h, linear)) is None:
            return super().gate(h, norm, linear)
        return product(h, gain=norm.weight, eps=norm.eps, gated=True), h

    def join(self, x: Tensor, linear: nn.Module, residual: Tensor) -> Hidden:
        """As `Operations.join`, summed at once; among ranks the first adds the residual to its summand."""
        ranks = linear.tensor_parallel if isinstance(linear, RowParallelLinear) else TensorParallel()
        shard = linear.shard if isinstance(linear, RowParallelLinear) else linear
        if (product := self._with_neighbours(x, shard)) is None:
            return super().join(x, linear, residual)
        return ranks.reduce(product(x, residual=residual if ranks.rank == 0 else None))

    def product(self, x: Tensor, linear: nn.Module) -> Tensor:
        """As `Operations.product`."""
        if isinstance(linear, RowParallelLinear):
            return linear.tensor_parallel.reduce(self.product(x, linear.shard))
        few = self._plain(x, linear) and is_few(x, linear.weight)
        return few_linear(x, linear.weight, linear.bias) if few else super().product(x, linear)

    def gated_product(self, x: Tensor, linear: nn.Module) -> Tensor:
        """As `Operations.gated_product`."""
        few = self._plain(x, linear) and is_few(x, linear.weight, gated=True)
        return few_linear(x, linear.weight, linear.bias, gated=True) if few else super().gated_product(x, linear)

    def _with_neighbours(self, x: Hidden, linear: nn.Module) -> Callable[..., Tensor] | None:
        """What multiplies the single token x by `linear` together with its neighbours; None where nothing does."""
        if self._inside(x, linear):
            return partial(skinny_linear, weight=linear.weight, bias=linear.bias)
        offers = getattr(linear, "inside", None)
        return offers(x) if offers is not None and isinstance(x, Tensor) and len(x) == 1 and self.takes(x) else None

    def _inside(self, x: Hidden, linear: nn.Module) -> bool:
        return isinstance(x, Tensor) and len(x) == 1 and self._plain(x, linear)

    def _plain(self, x: Tensor, linear: nn.Module) -> bool:
        return type(linear) is nn.Linear and linear.weight.dtype == x.dtype and self.takes(x)


def early_add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """`fusion.add_rms_norm` in a launch that starts while the product before it still runs, where the GPU can."""
    return fusion.add_rms_norm(x, residual, weight, eps, overlap=True)


def silu_gated(gate_up: Tensor) -> Tensor:
    """SiLU(gate) * up [T, I] of gate_up [T, 2 I] in two launches."""
    return eager.gated(gate_up, "silu")


def rotate_then_attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    norms: QKNorms | None,
    angles: Angles,
    attend: Attend,
    layer: int,
    step: Step,
    window: int | None,
) -> Tensor:
    """QK-norm and RoPE in torch, then whatever `attend` does: q [T, Hq, D], k and v [T, Hkv, D] -> [T, Hq, D]."""
    if norms is not None:
        q, k = norms[0](q), norms[1](k)
    q, k = angles.rotate(q), angles.rotate(k)
    windowed = {} if window is None else {"window": window}
    return attend(q, k, v, layer, step, **windowed)


def write_then_attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    norms: QKNorms | None,
    angles: Angles,
    attend: Attend,
    layer: int,
    step: Step,
    window: int | None,
) -> Tensor:
    """As `rotate_then_attend`, up to and with the write into the cache in one launch where `attend` keeps one."""
    if not isinstance(attend, CacheAttend) or attend.cache.pool.dtype != k.dtype:
        return rotate_then_attend(q, k, v, norms, angles, attend, layer, step, window)
    attend.check(step)
    to = attend.cache.k(layer), attend.cache.v(layer), angles.positions, angles.table, step.slot_mapping
    if norms is None:
        q = fusion.rope_kv_write(q, k, v, *to)
    else:
        q = fusion.qk_norm_rope_kv_write(q, k, v, norms[0].weight, norms[1].weight, *to, norms[0].eps)
    return attend.attend(q, layer, step, window)


@cache
def _compiles() -> bool:
    return triton_mode("cuda") == "compiled"


def compiled_for(x: Tensor) -> bool:
    """Whether a compiled kernel takes x."""
    return x.is_cuda and x.dtype in KERNEL_DTYPES and _compiles()


def _where_compiled(fused: Callable[..., Any], plain: Callable[..., Any]) -> Callable[..., Any]:
    """`fused` for tensors that a compiled kernel takes, else `plain`."""

    @wraps(fused)
    def choose(first: Tensor, *rest: Any) -> Any:
        return (fused if compiled_for(first) else plain)(first, *rest)

    return choose


EAGER = Operations("eager", eager.library_add_rms_norm, silu_gated, rotate_then_attend)
KERNELS = Operations("kernels", fusion.add_rms_norm, fusion.swiglu, write_then_attend)
INSIDE = InsideOperations("inside", early_add_rms_norm, KERNELS.gated, KERNELS.attend, takes=lambda x: True)
FUSED = InsideOperations(
    "fused",
    _where_compiled(early_add_rms_norm, EAGER.add_norm),
    _where_compiled(KERNELS.gated, EAGER.gated),
    _where_compiled(KERNELS.attend, EAGER.attend),
    takes=compiled_for,
)
