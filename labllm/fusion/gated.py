"""SwiGLU and GeGLU in one launch, kernels/gated.py: the gate between the two GEMMs of an MLP.

gate_up is what one GEMM with both weights stacked leaves, so fusing gate and up costs nothing here: the two halves of a
row are read where they lie. Captured CUDA graphs may hold both.
"""

from __future__ import annotations

from torch import Tensor

from labllm.fusion.check import check_gate_up
from labllm.fusion.tiles import cut_rows
from labllm.hardware import this_machine


def swiglu(gate_up: Tensor) -> Tensor:
    """SiLU(gate) * up `[T, I]` of gate_up `[T, 2 I]`, gates first, contiguous, float32, float16 or bfloat16.

    3 T I e bytes. Raises ValueError for others.
    """
    return _gated(gate_up, "silu")


def geglu(gate_up: Tensor) -> Tensor:
    """GELU(gate) * up `[T, I]` with the exact GELU, to float32's accuracy; otherwise as `swiglu`."""
    return _gated(gate_up, "gelu")


def _gated(gate_up: Tensor, activation: str) -> Tensor:
    check_gate_up(gate_up)
    count, columns = gate_up.shape[0], gate_up.shape[1] // 2
    out = gate_up.new_empty(count, columns)
    if count:
        from labllm.kernels import gated as kernel

        kernel.gated(out, gate_up, activation, *cut_rows(count, columns, this_machine(gate_up.device.type)))
    return out
