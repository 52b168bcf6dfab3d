"""The ladder of an MLP's gate and up projections: two GEMMs or one, and the gate behind them in one launch or more.

Both GEMMs read the same x `[T, H]`: stacked, rows [gate | up], `[2 I, H]`, they are one, whose output is what SwiGLU's
launch reads in place. Two GEMMs of equal size fill a device as well as one of twice the size, so stacking saves less
here than at q, k and v: a launch with its ramp, and one reading of x. Without the fused gate it can even lose: a
library's element-wise kernels read two whole tensors faster than the two halves of one tensor's rows. Past T = peak
rate / bandwidth FLOPs a byte (times e / 2) arithmetic sets the pace, stacking saves nothing, and the gate's own passes
are all there is to fuse.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch.nn.functional as F
from torch import Tensor

from labllm.bench import Ladder, Rung, axis
from labllm.fusion import eager
from labllm.fusion.gated import swiglu
from labllm.fusion.qkv_ladder import TOKENS
from labllm.fusion.vertical import DTYPES, compiled_rung, draw, picked, triton_rung
from labllm.roofline import DTYPE_BYTES, Cost, linear


@dataclass(frozen=True)
class GateUp:
    """`tokens` hidden states of `hidden` elements, projected to `intermediate` gates and ups; SwiGLU of these."""

    tokens: int = axis(64, *TOKENS, unit="tokens", label="tokens")
    hidden: int = axis(4096, 256, 1024, 2048, 4096, 5120, 8192, label="hidden")
    intermediate: int = axis(14336, 768, 2816, 5632, 14336, 28672, label="intermediate")
    dtype: str = axis("float16", *DTYPES)


class GateUpInputs(NamedTuple):
    """x [T, H] and weight [2 I, H], gates first."""

    x: Tensor
    weight: Tensor


def _inputs(w: GateUp, device: str, seed: int) -> GateUpInputs:
    drawn = draw(w, device, seed)
    return GateUpInputs(drawn(w.tokens, w.hidden), drawn(2 * w.intermediate, w.hidden) * w.hidden**-0.5)


def _reference(inputs: GateUpInputs, rows: Tensor | None) -> Tensor:
    gate, up = (picked(rows, inputs.x)[0] @ half.double().T for half in inputs.weight.chunk(2))
    return F.silu(gate) * up


def _two_of(x: Tensor, weight: Tensor) -> Tensor:
    gate, up = (F.linear(x, half) for half in weight.chunk(2))
    return F.silu(gate) * up


def _two(inputs: GateUpInputs) -> Tensor:
    return _two_of(*inputs)


def _one(inputs: GateUpInputs) -> Tensor:
    return eager.gated(F.linear(*inputs), "silu")


def _one_fused(inputs: GateUpInputs) -> Tensor:
    return swiglu(F.linear(*inputs))


def _outputs(w: GateUp) -> float:
    return w.tokens * w.intermediate * DTYPE_BYTES[w.dtype]


def _moved(reads: int, passes: int) -> Callable[[GateUp], Cost]:
    """x read `reads` times, the weights once, gates and ups written, and `passes` over [T, I] behind."""

    def cost(w: GateUp) -> Cost:
        gemm = linear(w.tokens, w.hidden, 2 * w.intermediate, DTYPE_BYTES[w.dtype])
        again = (reads - 1) * w.tokens * w.hidden * DTYPE_BYTES[w.dtype]
        return Cost(gemm.flops + 5.0 * w.tokens * w.intermediate, gemm.bytes + again + passes * _outputs(w))

    return cost


GATE_UP_PROJECTION = Ladder(
    name="gate-up-projection",
    title="Gate and up: two GEMMs or one, and SwiGLU behind them",
    workload=GateUp,
    inputs=_inputs,
    input_bytes=lambda w: _moved(1, -2)(w).bytes,
    cost=_moved(1, -1),  # the product is written once; gates and ups need not reach memory
    reference=_reference,
    rungs=(
        Rung(
            "two GEMMs",
            _two,
            about="a GEMM for the gate and one for up, then SiLU, then the product",
            moved=_moved(2, 5),
            memory=lambda w: 4 * _outputs(w),
        ),
        compiled_rung(_two_of, memory=lambda w: 3 * _outputs(w)),
        Rung(
            "one GEMM",
            _one,
            about="the weights are stacked: x is read once, one launch for two",
            moved=_moved(1, 5),
            memory=lambda w: 4 * _outputs(w),
        ),
        triton_rung(
            "one GEMM, one launch",
            _one_fused,
            "SwiGLU is one launch that reads gate and up where the GEMM left them",
            "gated",
            "activations",
            moved=_moved(1, 3),
            memory=lambda w: 3 * _outputs(w),
        ),
    ),
    sizes={
        "fast": (GateUp(4, 256, 768, "float32"),),
        "small": tuple(GateUp(t, 256, 768, "float32") for t in TOKENS[:6]),
        "full": tuple(GateUp(t, 4096, 14336, "bfloat16") for t in TOKENS),
    },
)
