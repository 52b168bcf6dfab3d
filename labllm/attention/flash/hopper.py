"""Flash attention with what newer GPUs have: the copy engine (TMA), and warps with work of their own (Gluon).

Both take the dense layout and a causal mask or none, no window and no log-sum-exp.
"""

from __future__ import annotations

import torch
from torch import Tensor

from labllm.attention.dense import check_dense
from labllm.attention.flash.check import check_kernel
from labllm.attention.flash.tiles import Tiles, section, tiles_for
from labllm.hardware import Machine, this_machine, triton_mode

ALIGNED = 16  # bytes: what the copy engine asks of addresses and strides
RINGS = {64: (128, 4), 128: (128, 2)}  # head_dim: keys of a tile, tiles in flight


def flash_tma(q: Tensor, k: Tensor, v: Tensor, causal: bool = True, tiles: Tiles | None = None) -> Tensor:
    """Attention `[B, Hq, Tq, D]` of q `[B, Hq, Tq, D]` over k, v `[B, Hkv, Tk, D]` through tensor descriptors.

    Raises ValueError for what does not fit the layout, and for addresses or strides that are no multiple of 16 bytes.
    """
    _check(q, k, v, causal)
    out = torch.empty_like(q)
    if not out.numel() or not k.shape[2]:
        return out.zero_()
    from labllm.kernels import flash_tma as kernel

    machine = this_machine(q.device.type)
    kernel.flash_tma(out, q, k, v, causal, _section(q, k, machine), *(tiles or tiles_for(q.shape[3], q.dtype, machine)))
    return out


def flash_specialized(q: Tensor, k: Tensor, v: Tensor, causal: bool = True) -> Tensor:
    """As `flash_tma`, by kernels/flash_gluon.py: compute capability 9.x, head_dim 64 or 128, float16 or bfloat16.

    Raises ValueError, also where `why_not_specialized` has a reason.
    """
    _check(q, k, v, causal)
    if reason := why_not_specialized(q.shape[3], q.dtype, q.device.type):
        raise ValueError(reason)
    out = torch.empty_like(q)
    if not out.numel() or not k.shape[2]:
        return out.zero_()
    from labllm.kernels import flash_gluon as kernel

    kernel.flash_gluon(out, q, k, v, causal, _section(q, k, this_machine(q.device.type)), *RINGS[q.shape[3]])
    return out


def why_not_tma(device: str) -> str | None:
    """The sentence that says why tensor descriptors gain nothing on `device`, or None where there is a copy engine."""
    capability = this_machine(device).capability
    if capability is None or capability >= (9, 0):
        return None
    return f"the copy engine came with compute capability 9.0 and this GPU has {capability}: flash stands in"


def why_not_specialized(head_dim: int, dtype: torch.dtype, device: str) -> str | None:
    """The sentence that says why `flash_specialized` cannot run, or None where it can."""
    if triton_mode(device) != "compiled":
        return "it is written in Gluon, which has no interpreter: it needs a GPU of compute capability 9.x (H100, H200)"
    capability = this_machine(device).capability
    if capability is None or capability[0] != 9:
        return f"it uses Hopper's warpgroup products: it needs compute capability 9.x, this GPU has {capability}"
    if head_dim not in RINGS or dtype not in (torch.float16, torch.bfloat16):
        return f"it takes head_dim 64 or 128 in float16 or bfloat16, got {head_dim} in {dtype}"
    return None


def _check(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> None:
    check_dense(q, k, v, causal)
    check_kernel(q, k, v, None, None, ())
    for name, x in (("q", q), ("k", k), ("v", v)):
        if x.data_ptr() % ALIGNED or any(n * x.element_size() % ALIGNED for n in x.stride()[:3]):
            raise ValueError(
                f"the copy engine needs addresses and strides that are multiples of {ALIGNED} bytes: {name} has "
                f"strides {x.stride()} of {x.element_size()} bytes; call {name}.contiguous() or use flash"
            )


def _section(q: Tensor, k: Tensor, machine: Machine) -> int:
    return section(k.shape[2], q.shape[1], k.shape[1], q.shape[3], q.element_size(), machine)
