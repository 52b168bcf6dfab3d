"""The ladder of residual add, RMSNorm and quantisation of rows: what stands before an eight-bit linear.

Every rung is lossy, and by as much: the metric 'distance to exact' is what eight bits cost, the check is that nothing
beyond rounding was lost. Eager runs add a pass over memory for each step of the quantisation to those of the norm, and
this is where fusing saves most of all vertical chains.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from labllm import fusion
from labllm.bench import CannotRun, Ladder, Rung, axis
from labllm.fusion import eager
from labllm.fusion.check import no_float8
from labllm.fusion.codes import LIMITS, NAMES, CloseCodes, Codes
from labllm.fusion.norm_ladders import RMS_EPS, eager_rms_cost
from labllm.fusion.vertical import Rows, compiled_rung, draw, room, sizes, triton_rung
from labllm.roofline import DTYPE_BYTES, Cost


@dataclass(frozen=True)
class QuantizedRows(Rows):
    """`rows` tokens of `hidden` elements, normalised and quantised to `codes` of eight bits."""

    codes: str = axis("float8", *NAMES, label="codes")


class QuantizeInputs(NamedTuple):
    """x and residual [T, H], weight [H], the codes' dtype, eps."""

    x: Tensor
    residual: Tensor
    weight: Tensor
    dtype: torch.dtype
    eps: float


def _inputs(w: QuantizedRows, device: str, seed: int) -> QuantizeInputs:
    drawn = draw(w, device, seed)
    x, residual = drawn(w.rows, w.hidden), drawn(w.rows, w.hidden)
    return QuantizeInputs(x, residual, 1 + drawn(w.hidden) / 4, NAMES[w.codes], RMS_EPS)


def _norm(inputs: QuantizeInputs, total: Tensor) -> Tensor:
    total = total.double()
    return total / (total.square().mean(-1, keepdim=True) + inputs.eps).sqrt() * inputs.weight.double()


def _exact(inputs: QuantizeInputs, rows: Tensor | None) -> tuple[Tensor, Tensor]:
    x, residual = (t.double() if rows is None else t[rows].double() for t in (inputs.x, inputs.residual))
    return _norm(inputs, x + residual), x + residual


def _own(inputs: QuantizeInputs, rows: Tensor | None) -> tuple[Codes, Tensor]:
    """Of the sum as it is stored; codes not rounded."""
    total = _exact(inputs, rows)[1].to(inputs.x.dtype).double()
    norm = _norm(inputs, total)
    largest = norm.abs().amax(-1, keepdim=True)
    scale = torch.where(largest > 0, largest / LIMITS[inputs.dtype], 1.0)
    return Codes(norm / scale, scale), total


def _answer(out: tuple[Tensor, Tensor, Tensor]) -> tuple[Codes, Tensor]:
    codes, scales, total = out
    return Codes(codes, scales), total


def _eager(inputs: QuantizeInputs) -> tuple[Codes, Tensor]:
    return _answer(eager.add_rms_norm_quantize(*inputs))


def _fused(inputs: QuantizeInputs) -> tuple[Codes, Tensor]:
    return _answer(fusion.add_rms_norm_quantize(*inputs))


def _compiled(x: Tensor, residual: Tensor, weight: Tensor, dtype: torch.dtype, eps: float) -> tuple[Codes, Tensor]:
    return _answer(eager.add_rms_norm_quantize(x, residual, weight, dtype, eps))


def _where_float8_is(inputs: QuantizeInputs) -> QuantizeInputs:
    if inputs.dtype == torch.float8_e4m3fn and (reason := no_float8(inputs.x.device.type)):
        raise CannotRun(reason)
    return inputs


def _cost(w: QuantizedRows) -> Cost:
    """x and residual read, the sum and the codes written, one scale a row."""
    elements, e = w.rows * w.hidden, DTYPE_BYTES[w.dtype]
    return Cost(9.0 * elements, 3 * elements * e + elements + 4 * w.rows + w.hidden * e)


def _eager_cost(w: QuantizedRows) -> Cost:
    """The norm's, then twice to float32; absolute values 2, their maximum 1, quotients, clamped, rounded, converted."""
    elements, e = w.rows * w.hidden, DTYPE_BYTES[w.dtype]
    passes = (33 if w.dtype == "float32" else 2 * e + 41) + (8 if w.codes == "int8" else 0)
    return eager_rms_cost(w) + Cost(3.0 * elements, passes * elements + 12 * w.rows)


def _room(e: float) -> Callable[[Any], float]:
    return lambda w: e * w.rows * w.hidden + room(1)(w)


def _sizes(codes: str) -> dict[str, tuple[QuantizedRows, ...]]:
    return sizes(lambda rows, hidden, dtype: QuantizedRows(rows, hidden, dtype, codes))


ADD_RMS_NORM_QUANTIZE = Ladder(
    name="add-rms-norm-quantize",
    title="Residual add, RMSNorm and quantisation of rows to eight bits",
    workload=QuantizedRows,
    inputs=_inputs,
    input_bytes=room(2),
    cost=_cost,
    reference=_exact,
    compare=CloseCodes(),
    rungs=(
        Rung(
            "eager",
            _eager,
            about="the formulas as they read: a launch and a pass over memory a step",
            moved=_eager_cost,
            memory=_room(18),
            own_reference=_own,
        ),
        compiled_rung(
            _compiled, memory=_room(1), own_reference=lambda state, rows: _own(QuantizeInputs(*state.arguments), rows)
        ),
        triton_rung(
            "triton",
            _fused,
            "one launch: a row is read once, its maximum is found in registers",
            "add_norm_quantize",
            "add_norm",
            "activations",
            prepare=_where_float8_is,
            memory=_room(1),
            own_reference=_own,
        ),
    ),
    sizes={
        "fast": _sizes("float8")["fast"] + _sizes("int8")["fast"],
        "small": _sizes("float8")["small"] + _sizes("int8")["small"],
        "full": _sizes("float8")["full"] + tuple(QuantizedRows(r, 4096, "bfloat16", "int8") for r in (1, 64, 16384)),
    },
)
