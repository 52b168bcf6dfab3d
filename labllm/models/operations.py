"""What a layer does between its GEMMs, as a bundle with a name: the same formulas, unfused and fused.

    add_norm   s = x + residual and RMSNorm(s): what surrounds attention and MLP
    gated      SiLU(gate) * up: what stands between the MLP's GEMMs
    attend     RoPE on q and k, keys and values to the cache, attention

EAGER writes each as torch's own operations, KERNELS launches one Triton kernel for each (`labllm.fusion`), FUSED is
KERNELS where Triton compiles and EAGER elsewhere: what a model is given unless it is to be slow on purpose. A further
variant is `dataclasses.replace` of one operation, under another name.

Cost: EAGER moves what its launches write and read again. Invariant: all bundles compute the same, within the dtype's
rounding. Fusing does nothing where the GEMMs are bound by their arithmetic: they are not in here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, wraps
from typing import Any

import torch
from torch import Tensor

from labllm import fusion
from labllm.attention.attend import Attend, CacheAttend
from labllm.cache.step import Step
from labllm.fusion import eager
from labllm.hardware import triton_mode
from labllm.models.rope import Angles, rotate

KERNEL_DTYPES = (torch.float32, torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class Operations:
    """A named way to compute what surrounds the GEMMs of a layer.

    add_norm(x [T, H], residual [T, H], weight [H], eps) -> (RMSNorm(x + residual) * weight, x + residual)
    gated(gate_up [T, 2 I], gates first) -> SiLU(gate) * up [T, I]
    attend(q [T, Hq, D], k, v [T, Hkv, D], angles, attend, layer, step, window) -> [T, Hq, D]; q, k, v may be slices
    """

    name: str
    add_norm: Callable[[Tensor, Tensor, Tensor, float], tuple[Tensor, Tensor]]
    gated: Callable[[Tensor], Tensor]
    attend: Callable[[Tensor, Tensor, Tensor, Angles, Attend, int, Step, int | None], Tensor]


def silu_gated(gate_up: Tensor) -> Tensor:
    """SiLU(gate) * up [T, I] of gate_up [T, 2 I] in two launches."""
    return eager.gated(gate_up, "silu")


def rotate_then_attend(
    q: Tensor, k: Tensor, v: Tensor, angles: Angles, attend: Attend, layer: int, step: Step, window: int | None
) -> Tensor:
    """RoPE in torch, then whatever `attend` does: q [T, Hq, D], k and v [T, Hkv, D] -> [T, Hq, D]."""
    q, k = (rotate(x, angles.cos, angles.sin) for x in (q, k))
    windowed = {} if window is None else {"window": window}
    return attend(q, k, v, layer, step, **windowed)


def write_then_attend(
    q: Tensor, k: Tensor, v: Tensor, angles: Angles, attend: Attend, layer: int, step: Step, window: int | None
) -> Tensor:
    """As `rotate_then_attend`, with RoPE and the write into the cache in one launch where `attend` keeps one."""
    if not isinstance(attend, CacheAttend) or attend.cache.pool.dtype != k.dtype:
        return rotate_then_attend(q, k, v, angles, attend, layer, step, window)
    attend.check(step)
    k_cache, v_cache = attend.cache.k(layer), attend.cache.v(layer)
    q = fusion.rope_kv_write(q, k, v, k_cache, v_cache, angles.positions, angles.table, step.slot_mapping)
    return attend.attend(q, layer, step, window)


@cache
def _compiles() -> bool:
    return triton_mode("cuda") == "compiled"


def _where_compiled(fused: Callable[..., Any], plain: Callable[..., Any]) -> Callable[..., Any]:
    """`fused` for tensors that a compiled kernel takes, else `plain`."""

    @wraps(fused)
    def choose(first: Tensor, *rest: Any) -> Any:
        compiled = first.is_cuda and first.dtype in KERNEL_DTYPES and _compiles()
        return (fused if compiled else plain)(first, *rest)

    return choose


EAGER = Operations("eager", eager.library_add_rms_norm, silu_gated, rotate_then_attend)
KERNELS = Operations("kernels", fusion.add_rms_norm, fusion.swiglu, write_then_attend)
FUSED = Operations(
    "fused",
    _where_compiled(KERNELS.add_norm, EAGER.add_norm),
    _where_compiled(KERNELS.gated, EAGER.gated),
    _where_compiled(KERNELS.attend, EAGER.attend),
)
