"""The ladders of residual add and norm: with RMSNorm returning both results, with LayerNorm and GELU.

RMSNorm's ladder shows one launch an operation, what a library's norm saves of it, and one launch for all; the second
is the chain that introductions to fusion take, with two reductions a row and an activation behind them.
"""

from __future__ import annotations

from typing import NamedTuple

import torch.nn.functional as F
from torch import Tensor

from labllm import cuda, fusion
from labllm.bench import Ladder, Rung
from labllm.cuda.nvcc import source, with_includes
from labllm.fusion import eager, peers
from labllm.fusion.vertical import Rows, compiled_rung, draw, passes_cost, picked, room, sizes, triton_rung
from labllm.roofline import DTYPE_BYTES, Cost

RMS_EPS, LAYER_EPS = 1e-6, 1e-5


class RmsInputs(NamedTuple):
    """x and residual [T, H], weight [H], eps."""

    x: Tensor
    residual: Tensor
    weight: Tensor
    eps: float


class LayerInputs(NamedTuple):
    """x and residual [T, H], weight and bias [H], eps."""

    x: Tensor
    residual: Tensor
    weight: Tensor
    bias: Tensor
    eps: float


def _rms_inputs(w: Rows, device: str, seed: int) -> RmsInputs:
    drawn = draw(w, device, seed)
    return RmsInputs(drawn(w.rows, w.hidden), drawn(w.rows, w.hidden), 1 + drawn(w.hidden) / 4, RMS_EPS)


def _layer_inputs(w: Rows, device: str, seed: int) -> LayerInputs:
    drawn = draw(w, device, seed)
    x, residual = drawn(w.rows, w.hidden), drawn(w.rows, w.hidden)
    return LayerInputs(x, residual, 1 + drawn(w.hidden) / 4, drawn(w.hidden) / 4, LAYER_EPS)


def _rms_reference(inputs: RmsInputs, rows: Tensor | None) -> tuple[Tensor, Tensor]:
    x, residual = picked(rows, inputs.x, inputs.residual)
    total = x + residual
    return total / (total.square().mean(-1, keepdim=True) + inputs.eps).sqrt() * inputs.weight.double(), total


def _layer_reference(inputs: LayerInputs, rows: Tensor | None) -> Tensor:
    x, residual = picked(rows, inputs.x, inputs.residual)
    norm = F.layer_norm(x + residual, x.shape[1:], inputs.weight.double(), inputs.bias.double(), inputs.eps)
    return F.gelu(norm)


def eager_rms_cost(w: Rows) -> Cost:
    """Add 3, and in float32 square 2, mean 1, scale 2, then weight 2; half precision converts before and after."""
    elements, e = w.rows * w.hidden, DTYPE_BYTES[w.dtype]
    return passes_cost(6, 10, 1)(w) if w.dtype == "float32" else Cost(6.0 * elements, 7 * elements * e + 28 * elements)


def _eager_rms(inputs: RmsInputs) -> tuple[Tensor, Tensor]:
    return eager.add_rms_norm(*inputs)


def _library_rms(inputs: RmsInputs) -> tuple[Tensor, Tensor]:
    return eager.library_add_rms_norm(*inputs)


def _fused_rms(inputs: RmsInputs) -> tuple[Tensor, Tensor]:
    return fusion.add_rms_norm(*inputs)


def _in_place_rms(inputs: RmsInputs) -> tuple[Tensor, Tensor]:
    fusion.fused_add_rms_norm(*inputs)
    return inputs.x, inputs.residual


def _eager_layer(inputs: LayerInputs) -> Tensor:
    return eager.add_layer_norm_gelu(*inputs)


def _fused_layer(inputs: LayerInputs) -> Tensor:
    return fusion.add_layer_norm_gelu(*inputs)


def _by_hand_layer(inputs: LayerInputs) -> Tensor:
    return cuda.add_layer_norm_gelu(*inputs)


def _only_pieces(w: Rows) -> str | None:
    if w.dtype == "float32":
        return "the kernel takes float16 and bfloat16: choose one of them"
    return "the kernel takes rows of up to 16384 elements" if w.hidden > 16384 else None


ADD_RMS_NORM = Ladder(
    name="add-rms-norm",
    title="Residual add and RMSNorm, returning both",
    workload=Rows,
    inputs=_rms_inputs,
    input_bytes=room(2),
    cost=passes_cost(6, 4, 1),
    reference=_rms_reference,
    rungs=(
        Rung(
            "eager",
            _eager_rms,
            about="the formula as it reads: a launch and a pass over memory an operation",
            moved=eager_rms_cost,
            memory=lambda w: 10.0 * w.rows * w.hidden + room(2)(w),
        ),
        compiled_rung(eager.add_rms_norm, memory=room(2)),
        triton_rung(
            "triton",
            _fused_rms,
            "one launch: a row is read once and both results are written once",
            "add_norm",
            "activations",
            memory=room(2),
        ),
        triton_rung(
            "triton, in place",
            _in_place_rms,
            "results overwrite the inputs: no memory is allocated",
            "add_norm",
            "activations",
            in_place=True,
        ),
        Rung("F.rms_norm", _library_rms, moved=passes_cost(6, 5, 1), memory=room(2), peer=True),
        Rung(
            "flashinfer, in place",
            peers.flashinfer_add_rms_norm,
            peers.flashinfer,
            needs=("cuda",),
            refuses=peers.only_half,
            in_place=True,
            peer=True,
        ),
        Rung("liger", peers.liger_add_rms_norm, peers.liger, needs=("cuda",), memory=room(2), peer=True),
    ),
    sizes=sizes(Rows),
)

ADD_LAYER_NORM_GELU = Ladder(
    name="add-layer-norm-gelu",
    title="Residual add, LayerNorm and GELU",
    workload=Rows,
    inputs=_layer_inputs,
    input_bytes=room(2),
    cost=passes_cost(15, 3, 2),
    reference=_layer_reference,
    rungs=(
        Rung(
            "eager",
            _eager_layer,
            about="three library kernels: the sum and the norm are written and read again",
            moved=passes_cost(15, 7, 2),
            memory=room(3),
        ),
        compiled_rung(eager.add_layer_norm_gelu, memory=room(1)),
        triton_rung(
            "triton",
            _fused_layer,
            "one launch: a row is read once, reduced in registers and written once",
            "add_norm",
            "activations",
            memory=room(1),
        ),
        Rung(
            "CUDA C++",
            _by_hand_layer,
            about="the same launch written by hand: 16-byte loads, and sums by warp shuffles",
            needs=("cuda", "nvcc"),
            refuses=_only_pieces,
            memory=room(1),
            sources=with_includes(source(cuda.fused.FILE)),
        ),
    ),
    sizes=sizes(Rows),
)
