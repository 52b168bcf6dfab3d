"""The right answers to the rungs of the INT4 ladder, in float64: each on the operands that its way of rounding leaves.

So a kernel is judged for its arithmetic and not for its rounding. A state has `x`, and the weight as it is `stored`
(inputs: `weight` and `packed`); `rows` are the tokens asked for, None means all.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from labllm.quantization.activations import int8_rows
from labllm.quantization.eight_bits import quantize_rows


def exact_answer(inputs: Any, rows: Tensor | None) -> Tensor:
    """float64 on the weights before rounding."""
    x = inputs.x if rows is None else inputs.x[rows]
    return x.double() @ inputs.weight.double().T


def stored_reference(state: Any, rows: Tensor | None) -> Tensor:
    """float64 on the rounded weights."""
    weight = state.packed if hasattr(state, "packed") else state.stored
    return (state.x if rows is None else state.x[rows]).double() @ weight.dequantize(torch.float64).T


def int8_reference(state: Any, rows: Tensor | None) -> Tensor:
    """float64 on rounded weights and rounded activations."""
    values, scales = int8_rows(state.x if rows is None else state.x[rows])
    return (values.double() * scales.double()) @ state.stored.dequantize(torch.float64).T


def float8_reference(state: Any, rows: Tensor | None) -> Tensor:
    """float64 on weights and activations in FP8."""
    values, scales = quantize_rows(state.x if rows is None else state.x[rows], torch.float8_e4m3fn)
    return (values.double() * scales.double()[:, None]) @ state.stored.dequantize(torch.float64).T


def torch_reference(state: Any, rows: Tensor | None) -> Tensor:
    """float64 on what torch's operators multiply: x and scales in bfloat16."""
    stored = state.stored
    scales = stored.scales.to(torch.bfloat16).double().repeat_interleave(stored.group_size, 1)
    x = state.x if rows is None else state.x[rows]
    return x.to(torch.bfloat16).double() @ ((stored.codes().double() - 8) * scales).T
