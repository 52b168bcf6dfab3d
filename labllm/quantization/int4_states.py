"""What the rungs of the INT4 ladder multiply: one weight, laid out as each kernel reads it.

Laying out is done once, when a model is loaded, and is never timed. A rung for one kind of machine refuses the others
here, in a sentence.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from labllm.bench import CannotRun, torch_dtype
from labllm.quantization import eight_bits, torch_int4
from labllm.quantization.float8 import Float8Weight, float8_weight
from labllm.quantization.int4_cluster import built, why_not_cluster
from labllm.quantization.int4_work import Int4Linear
from labllm.quantization.kernel_layout import kernel_layout
from labllm.quantization.one_token import why_not_one_token
from labllm.quantization.packed import QuantizedWeight
from labllm.quantization.rtn import PER_CHANNEL, round_to_nearest
from labllm.quantization.wide import why_not_wide


class Inputs(NamedTuple):
    """x [M, K] and weight [N, K] in one dtype, and the weight rounded to four bits."""

    x: Tensor
    weight: Tensor
    packed: QuantizedWeight


class State(NamedTuple):
    """What a lossy rung multiplies: x, the weight as its kernel reads it, and as it is stored."""

    x: Tensor
    weight: Any
    stored: QuantizedWeight | Float8Weight


def inputs(w: Int4Linear, device: str, seed: int) -> Inputs:
    """Normal x, and normal weights that keep its size, beside their rounding."""
    generator = torch.Generator(device).manual_seed(seed)
    draw = partial(torch.randn, device=device, dtype=torch_dtype(w), generator=generator)
    weight = draw(w.outputs, w.inputs) * w.inputs**-0.5
    return Inputs(draw(w.tokens, w.inputs), weight, round_to_nearest(weight, 4, w.group_size, symmetric=True))


def _on(device: str, inputs: Inputs, reason: str) -> None:
    if inputs.x.device.type != device:
        raise CannotRun(reason)


def wide(inputs: Inputs) -> State:
    """Both in float32, on a CPU."""
    _on("cpu", inputs, "it is for CPUs; a GPU multiplies 16-bit numbers")
    return State(inputs.x.float(), inputs.weight.float(), inputs.packed)


def as_stored(inputs: Inputs) -> State:
    """The weight as it is saved."""
    return State(inputs.x, inputs.packed, inputs.packed)


def kernel(inputs: Inputs) -> State:
    """The weight in our kernels' order."""
    return State(inputs.x, kernel_layout(inputs.packed), inputs.packed)


def for_one_token(inputs: Inputs) -> State:
    """As `kernel`, where one token has a kernel of its own on the tensor cores."""
    if reason := why_not_one_token(inputs.x.shape[1], inputs.packed.group_size, inputs.x.device.type):
        raise CannotRun(reason)
    return kernel(inputs)


def for_wide(inputs: Inputs) -> State:
    """As `kernel`, where hundreds of tokens have a kernel of their own."""
    if reason := why_not_wide(inputs.x.shape[1], inputs.packed.group_size, inputs.x.device.type):
        raise CannotRun(reason)
    return kernel(inputs)


def for_cluster(inputs: Inputs) -> State:
    """As `kernel`, where clusters share out K; the kernel built, so that no run waits for it."""
    outputs, columns = inputs.weight.shape
    if reason := why_not_cluster(outputs, columns, inputs.packed.group_size, inputs.x.device.type):
        raise CannotRun(reason)
    state = kernel(inputs)
    built(state.x, state.weight)
    return state


def int8(inputs: Inputs) -> State:
    """The weight in INT8, a scale a row."""
    stored = round_to_nearest(inputs.weight, 8, PER_CHANNEL, symmetric=True, scale_dtype=torch.float32)
    return State(inputs.x, eight_bits.int8_weight(stored), stored)


def float8(inputs: Inputs) -> State:
    """The weight in E4M3, a scale a row."""
    stored = float8_weight(inputs.weight)
    return State(inputs.x, stored, stored)


def for_cpu(inputs: Inputs) -> State:
    """The weight as torch's operator for CPUs wants it."""
    _on("cpu", inputs, "it runs on CPUs; torch has another one for GPUs")
    return State(inputs.x, torch_int4.torch_weight(inputs.packed), inputs.packed)


def for_cuda(inputs: Inputs) -> State:
    """The weight as torch's operator for GPUs wants it."""
    _on("cuda", inputs, "it runs on an NVIDIA GPU")
    return State(inputs.x, torch_int4.torch_weight(inputs.packed), inputs.packed)
