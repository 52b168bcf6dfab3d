"""A decode step of a whole model whose linears lie in four bits, beside the same model in 16 bits.

The linears of the layers are rounded to nearest in groups of 128; embedding and head stay in 16 bits, and so does the
KV cache. Compulsory is what the INT4 model must read. On a GPU both models run as a CUDA graph, as an engine runs them.
The INT4 rung is lossy: its logits are checked in float64 against a plain model whose weights are the rounded ones.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

from torch import Tensor, nn

from labllm.bench import Rung
from labllm.cache.step import Step
from labllm.cuda.nvcc import source, with_includes
from labllm.hardware import triton_mode
from labllm.models.count import parameters
from labllm.models.decode_ladder import DECODE_STEP, DecodeStep, StepCase, shape_of
from labllm.models.graphs import DecodeGraphs
from labllm.models.llama import Llama
from labllm.models.load import from_config
from labllm.models.operations import FUSED, Operations
from labllm.models.ran import Ran, Ready, run
from labllm.models.wide import wide_logits
from labllm.quantization.int4_cluster import FILE
from labllm.quantization.linear import int4_linears
from labllm.quantization.rtn import round_to_nearest
from labllm.roofline import DTYPE_BYTES, Cost

GROUP_SIZE = 128
KERNEL_FILES = (
    "int4_linear", "int4_one_token", "int4_ptx", "int4_ring", "int4_wide", "int4_words", "split_sum", "sum_parts",
)  # fmt: skip


class SeededCase(NamedTuple):
    """A step of the 16-bit model, and the seed that makes the same weights again."""

    case: StepCase
    seed: int


class Graphed(NamedTuple):
    """A prepared rung and the case that it was prepared from."""

    ready: Ready
    seeded: SeededCase


class RoundedLinear(nn.Linear):
    """torch's linear with weights rounded to four bits and kept in the dtype in which they come."""

    def load_tensor(self, leaf: str, tensor: Tensor) -> None:
        """Take `weight` [N, K] or `bias` [N]."""
        if leaf == "weight":
            tensor = round_to_nearest(tensor, 4, GROUP_SIZE, symmetric=True).dequantize(tensor.dtype)
        setattr(self, leaf, nn.Parameter(tensor, requires_grad=False))


def _rounded(name: str, inputs: int, outputs: int, bias: bool) -> nn.Module:
    return nn.Linear(inputs, outputs, bias) if name == "lm_head" else RoundedLinear(inputs, outputs, bias)


def _inputs(w: DecodeStep, device: str, seed: int) -> SeededCase:
    return SeededCase(DECODE_STEP.inputs(w, device, seed), seed)


def _again(seeded: SeededCase, linear: Any, operations: Operations | None) -> Llama:
    """The case's model made anew, with other linears."""
    model = seeded.case.model
    return from_config(
        model.config, model.device, model.dtype, seeded.seed, model.attend, linear, operations=operations
    )


def _ready(model: Llama, ids: Tensor, step: Step, there: Step) -> Ready:
    """One step of a packed model: as a graph on a GPU where Triton compiles, else operation by operation."""
    device = model.device.type
    if device == "cuda" and triton_mode(device) == "compiled":
        graphs = DecodeGraphs(model, len(ids), step.max_seq_len, [len(ids)])
        return Ready(lambda: graphs.run(ids, step), model.config.num_hidden_layers, device)
    return Ready(lambda: model(ids, there), model.config.num_hidden_layers, device)


def _sixteen_bits(seeded: SeededCase) -> Graphed:
    case = seeded.case
    return Graphed(_ready(case.model.with_operations(FUSED), *case[1:]), seeded)


def _int4(seeded: SeededCase) -> Graphed:
    return Graphed(_ready(_again(seeded, int4_linears(GROUP_SIZE), FUSED), *seeded.case[1:]), seeded)


def _run(state: Graphed) -> Ran:
    return run(state.ready)


def _reference(seeded: SeededCase, rows: Tensor | None) -> Tensor:
    return DECODE_STEP.reference(seeded.case, rows)


def _own(state: Graphed, rows: Tensor | None) -> Tensor:
    """float64 on the rounded weights."""
    case = state.seeded.case
    logits = wide_logits(_again(state.seeded, _rounded, None), case.ids, case.there)
    return logits if rows is None else logits[rows]


def int4_saving(w: DecodeStep) -> float:
    """Bytes of the layers' linears that INT4 spares a step."""
    weights = parameters(shape_of(w))
    return (DTYPE_BYTES[w.dtype] - 0.5 - 2 / GROUP_SIZE) * (weights.attention + weights.mlp)


def _cost(w: DecodeStep) -> Cost:
    whole = DECODE_STEP.cost(w)
    return Cost(whole.flops, whole.bytes - int4_saving(w))


def _refuses(w: DecodeStep) -> str | None:
    if w.dtype == "float32":
        return "INT4 linears multiply in 16 bits: choose bfloat16"
    odd = {shape_of(w).hidden_size, shape_of(w).intermediate_size}
    return f"groups of {GROUP_SIZE} do not divide {odd}" if any(side % GROUP_SIZE for side in odd) else None


INT4_DECODE = replace(
    DECODE_STEP,
    name="int4-decode",
    title="A decode step with INT4 weights",
    inputs=_inputs,
    cost=_cost,
    reference=_reference,
    rungs=(
        Rung(
            "16-bit weights", _run, _sixteen_bits, about="every weight in 16 bits", moved=DECODE_STEP.cost,
            memory=DECODE_STEP.rungs[-1].memory, sources=DECODE_STEP.rungs[-1].sources,
        ),
        Rung(
            "INT4 weights", _run, _int4, about="the layers' linears in four bits, embedding and head in 16",
            refuses=_refuses, memory=DECODE_STEP.input_bytes, own_reference=_own,
            sources=(*(f"labllm.kernels.{name}" for name in KERNEL_FILES), *with_includes(source(FILE)), int4_linears),
        ),
    ),
    sizes={
        "fast": (DecodeStep(128, dtype="bfloat16"),),
        "small": tuple(DecodeStep(512, b, dtype="bfloat16") for b in (1, 4, 16)),
        "full": tuple(DecodeStep(1024, b, 0, "Llama-3.1-8B", "bfloat16") for b in (1, 32)),
    },
)  # fmt: skip
