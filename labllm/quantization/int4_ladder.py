"""The ladder of INT4 weights: one linear whose weights lie in four bits, from 16-bit weights to fused kernels.

All rungs but `linear` are lossy: each is checked against float64 on its own operands (`int4_answers`), and its
distance from the 16-bit weights is a metric.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch.nn.functional as F
from torch import Tensor

from labllm.bench import Ladder, Rung
from labllm.cuda.nvcc import source, with_includes
from labllm.quantization import eight_bits, int4, torch_int4
from labllm.quantization import int4_answers as answers
from labllm.quantization import int4_states as states
from labllm.quantization.int4_cluster import FILE, cluster
from labllm.quantization.int4_work import (
    TOKENS,
    Int4Linear,
    compulsory,
    moves,
    not_float32,
    only_bfloat16,
    only_one_token,
    only_sixteen_bits,
    only_some_tokens,
    room,
    torch_takes,
    whole_weights,
    written_out,
)
from labllm.quantization.one_token import one_token
from labllm.quantization.wide import wide


def _run(function: Any) -> Any:
    def run(state: states.State) -> Tensor:
        return function(state.x, state.weight)

    return run


def _dense(inputs: states.Inputs) -> Tensor:
    return F.linear(inputs.x, inputs.weight)


def _dequantized(inputs: states.Inputs) -> Tensor:
    return F.linear(inputs.x, inputs.packed.dequantize(inputs.x.dtype))


def _triton(name: str, function: Any, about: str, *kernels: str, more: tuple[Path, ...] = (), **fields: Any) -> Rung:
    """A rung whose kernels are kernels/*.py and `more`: function(x, weight) on what `prepare` made of the inputs."""
    sources = (function, *(f"labllm.kernels.{kernel}" for kernel in kernels), *more)
    return Rung(name, _run(function), about=about, needs=("triton",), sources=sources, memory=room, **fields)


_FUSED = "int4_linear", "int4_words", "split_sum"
_ONE_TOKEN = "int4_one_token", "int4_ring", "int4_ptx"
_WIDE = "int4_wide", "int4_ptx", "sum_parts"
_CLUSTER = with_includes(source(FILE))

INT4 = Ladder(
    name="int4-linear",
    title="A linear with INT4 weights",
    workload=Int4Linear,
    inputs=states.inputs,
    input_bytes=lambda w: 2 * room(w),
    cost=compulsory,
    reference=answers.exact_answer,
    rungs=(
        Rung("linear", _dense, about="16-bit weights: four times the bytes", moved=whole_weights, memory=room),
        Rung(
            "linear, float32",
            _run(F.linear),
            prepare=states.wide,
            about="for CPUs that multiply no 16-bit numbers: twice the bytes again",
            refuses=not_float32,
            moved=moves(4),
            memory=room,
        ),
        Rung(
            "dequantise, then multiply",
            _dequantized,
            about="a quarter of the memory, and more traffic than before: W is written out and read again",
            moved=written_out,
            memory=lambda w: 4 * room(w),
            own_reference=answers.stored_reference,
        ),
        _triton(
            "fused, plain",
            int4.plain,
            "W stays in four bits until it is in a register; each weight costs ten instructions",
            "int4_plain",
            prepare=states.as_stored,
            refuses=only_sixteen_bits,
            own_reference=answers.stored_reference,
        ),
        _triton(
            "gemv",
            int4.gemv,
            "bit tricks and the kernel's own order of nibbles, for one token on the CUDA cores",
            "int4_gemv",
            "int4_words",
            prepare=states.kernel,
            refuses=only_one_token,
            own_reference=answers.stored_reference,
        ),
        _triton(
            "fused",
            int4.fused,
            "bit tricks, weights in tensor-core order, K shared out to fill the device",
            *_FUSED,
            prepare=states.kernel,
            refuses=only_sixteen_bits,
            own_reference=answers.stored_reference,
        ),
        _triton(
            "one token",
            one_token,
            "words stream through one ring a program into tensor cores, K shared out to its warps",
            *_ONE_TOKEN,
            prepare=states.for_one_token,
            refuses=only_one_token,
            own_reference=answers.stored_reference,
        ),
        _triton(
            "hundreds of tokens",
            wide,
            "the next weights are dequantised while tensor cores multiply these",
            *_WIDE,
            prepare=states.for_wide,
            refuses=only_some_tokens,
            own_reference=answers.stored_reference,
        ),
        Rung(
            "CUDA C++",
            _run(cluster),
            prepare=states.for_cluster,
            about="fetching, making weights and multiplying have warps of their own; clusters of blocks share out K",
            needs=("cuda", "nvcc"),
            refuses=only_sixteen_bits,
            memory=room,
            own_reference=answers.stored_reference,
            sources=(cluster, *_CLUSTER),
        ),
        _triton(
            "dequantise once",
            int4.dequantize_then_multiply,
            "many tokens share one dequantisation, and cuBLAS multiplies",
            "int4_dequantize",
            "int4_words",
            prepare=states.kernel,
            moved=written_out,
            refuses=only_sixteen_bits,
            own_reference=answers.stored_reference,
        ),
        _triton(
            "chosen by batch",
            int4.linear,
            "the way that was measured to be fastest for so many tokens",
            *_FUSED,
            *_ONE_TOKEN,
            *_WIDE,
            "int4_dequantize",
            more=_CLUSTER,
            prepare=states.kernel,
            refuses=only_sixteen_bits,
            own_reference=answers.stored_reference,
        ),
        _triton(
            "W8A8",
            eight_bits.int8_linear,
            "integer tensor cores: activations are rounded too; twice the bytes of INT4",
            "int8_linear",
            "quantize_rows",
            "split_sum",
            prepare=states.int8,
            moved=moves(1),
            own_reference=answers.int8_reference,
        ),
        Rung(
            "FP8",
            _run(eight_bits.float8_linear),
            prepare=states.float8,
            about="both in E4M3 through torch._scaled_mm, activations rounded on the way",
            needs=("triton", "fp8"),
            refuses=only_bfloat16,
            moved=moves(1),
            memory=room,
            own_reference=answers.float8_reference,
            sources=(eight_bits.float8_linear, "labllm.kernels.quantize_rows"),
        ),
        Rung(
            "torch int4[tinygemm]",
            _run(torch_int4.torch_linear),
            prepare=states.for_cuda,
            refuses=torch_takes("cuda"),
            memory=room,
            own_reference=answers.torch_reference,
            peer=True,
            sources=(torch_int4.torch_linear, torch_int4.torch_weight),
        ),
        Rung(
            "torch int4[cpu]",
            _run(torch_int4.torch_linear),
            prepare=states.for_cpu,
            refuses=torch_takes("cpu"),
            memory=room,
            own_reference=answers.torch_reference,
            peer=True,
            sources=(torch_int4.torch_linear, torch_int4.torch_weight),
        ),
    ),
    sizes={
        "fast": (Int4Linear(1, 256, 256, 128, "float16"), Int4Linear(4, 256, 256, 128, "bfloat16")),
        "small": tuple(Int4Linear(t, 2048, 2048, 128, "bfloat16") for t in (1, 4, 16, 64, 256)),
        "full": (
            *(Int4Linear(t, 14336, 4096, 128, "bfloat16") for t in TOKENS[:-1] if t != 32),
            *(Int4Linear(t, 4096, 14336, 128, "bfloat16") for t in (1, 16, 64, 128, 512)),
        ),
    },
)
