"""Weights of a CPU's GEMMs, stored input by input: the same matrix [out, in], the other way round in memory.

y = x W^T with few rows of x reads W once and computes little. A CPU's GEMM copies W into panels first; where an input's
weights lie side by side the copy is cheap, and where an output's do it is a transpose. With many rows nothing changes.

Invariant: names, shapes and values stay, only strides change. On a GPU it gains nothing.
"""

from __future__ import annotations

from torch import nn


def store_by_inputs(model: nn.Module) -> None:
    """Lay out the weights of all torch Linears of a model on a CPU anew, in place; what lies so already stays."""
    for module in model.modules():
        if type(module) is nn.Linear and module.weight.device.type == "cpu" and module.weight.stride(0) != 1:
            module.weight.data = module.weight.data.t().contiguous().t()
