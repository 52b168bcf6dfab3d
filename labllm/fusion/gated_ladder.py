"""The ladder of the MLP's gate: SwiGLU and GeGLU on what one GEMM for gate and up leaves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from labllm import fusion
from labllm.bench import Ladder, Rung, axis
from labllm.fusion import eager, peers
from labllm.fusion.eager import ACTIVATIONS
from labllm.fusion.vertical import (
    DTYPES,
    HIDDEN,
    ROWS,
    compiled_rung,
    draw,
    passes_cost,
    picked,
    room,
    sizes,
    triton_rung,
)


@dataclass(frozen=True)
class Gates:
    """`rows` tokens of `hidden` gates and as many ups; the activation makes it SwiGLU (silu) or GeGLU (gelu)."""

    rows: int = axis(4096, *ROWS, unit="tokens", label="rows")
    hidden: int = axis(4096, *HIDDEN, label="intermediate")
    activation: str = axis("silu", *ACTIVATIONS)
    dtype: str = axis("float16", *DTYPES)


class GateInputs(NamedTuple):
    """gate_up [T, 2 I] and the name of the activation."""

    gate_up: Tensor
    activation: str


def _gate_inputs(w: Gates, device: str, seed: int) -> GateInputs:
    return GateInputs(draw(w, device, seed)(w.rows, 2 * w.hidden), w.activation)


def _gate_reference(inputs: GateInputs, rows: Tensor | None) -> Tensor:
    gate, up = picked(rows, inputs.gate_up)[0].chunk(2, dim=-1)
    return ACTIVATIONS[inputs.activation](gate) * up


def _eager_gated(inputs: GateInputs) -> Tensor:
    return eager.gated(*inputs)


def _fused_gated(inputs: GateInputs) -> Tensor:
    return fusion.swiglu(inputs.gate_up) if inputs.activation == "silu" else fusion.geglu(inputs.gate_up)


def _only_silu(w: Gates) -> str | None:
    return None if w.activation == "silu" else "Liger's GeGLU has the tanh form of GELU: choose silu"


GATED = Ladder(
    name="swiglu",
    title="SwiGLU and GeGLU: the gate of an MLP",
    workload=Gates,
    inputs=_gate_inputs,
    input_bytes=room(2),
    cost=passes_cost(5, 3),
    reference=_gate_reference,
    rungs=(
        Rung(
            "eager",
            _eager_gated,
            about="two library kernels: the activated gate is written and read again",
            moved=passes_cost(5, 5),
            memory=room(2),
        ),
        compiled_rung(eager.gated, memory=room(1)),
        triton_rung(
            "triton",
            _fused_gated,
            "one launch: gate and up are read where they lie",
            "gated",
            "activations",
            memory=room(1),
        ),
        Rung(
            "flashinfer",
            peers.flashinfer_gated,
            peers.flashinfer,
            needs=("cuda",),
            refuses=peers.only_half,
            memory=room(1),
            peer=True,
        ),
        Rung(
            "liger",
            peers.liger_swiglu,
            peers.liger_halves,
            needs=("cuda",),
            refuses=_only_silu,
            memory=room(3),
            peer=True,
            sources=(peers.liger,),
        ),
    ),
    sizes=sizes(lambda rows, hidden, dtype: Gates(rows, hidden, "silu", dtype)),
)
