"""The work of the INT4 ladder: one linear, what it must cost by how its weights are kept, and who cannot do it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from labllm.bench import axis
from labllm.quantization import torch_int4
from labllm.roofline import DTYPE_BYTES, Cost, linear

TOKENS = (1, 4, 16, 32, 64, 128, 256, 512, 1024, 2048)
SIDES = (256, 512, 1024, 2048, 4096, 8192, 14336)


@dataclass(frozen=True)
class Int4Linear:
    """`tokens` rows through a linear of `inputs` and `outputs`, weights in four bits in groups of `group_size`."""

    tokens: int = axis(1, *TOKENS, unit="rows", label="batch")
    outputs: int = axis(4096, *SIDES, label="outputs")
    inputs: int = axis(4096, *SIDES, label="inputs")
    group_size: int = axis(128, 32, 64, 128, label="group")
    dtype: str = axis("float16", "float16", "bfloat16", "float32")


def moves(weight_bytes: float) -> Callable[[Int4Linear], Cost]:
    """The Cost where each weight is moved as `weight_bytes` bytes, scales included."""
    return lambda w: linear(w.tokens, w.inputs, w.outputs, DTYPE_BYTES[w.dtype], weight_bytes)


def int4_bytes(w: Int4Linear) -> float:
    """Bytes a weight, scales included."""
    return 0.5 + 2 / w.group_size


def compulsory(w: Int4Linear) -> Cost:
    """INT4 weights read once, and the activations."""
    return linear(w.tokens, w.inputs, w.outputs, DTYPE_BYTES[w.dtype], int4_bytes(w))


def whole_weights(w: Int4Linear) -> Cost:
    """16-bit weights read (32-bit ones, where that is the dtype)."""
    return linear(w.tokens, w.inputs, w.outputs, DTYPE_BYTES[w.dtype])


def written_out(w: Int4Linear) -> Cost:
    """INT4 read, 16 bits written, 16 bits read."""
    return compulsory(w) + Cost(0, 2 * DTYPE_BYTES[w.dtype] * w.inputs * w.outputs)


def room(w: Int4Linear) -> float:
    """Bytes of one dense weight and an output."""
    return DTYPE_BYTES[w.dtype] * w.outputs * (w.inputs + w.tokens)


def only_sixteen_bits(w: Int4Linear) -> str | None:
    """Why a kernel of 16-bit activations refuses, or None."""
    return None if w.dtype in ("float16", "bfloat16") else "the kernel takes float16 and bfloat16: choose one of them"


def only_one_token(w: Int4Linear) -> str | None:
    """Why the kernels of one token refuse, or None."""
    if w.tokens > 1:
        return "it multiplies one token; batches want a GEMM"
    return "it takes groups of multiples of 64" if w.group_size % 64 else only_sixteen_bits(w)


def only_some_tokens(w: Int4Linear) -> str | None:
    """Why the kernel of hundreds of tokens refuses, or None."""
    return "its tiles are for hundreds of tokens" if w.tokens <= 4 else only_sixteen_bits(w)


def only_bfloat16(w: Int4Linear) -> str | None:
    """Why what multiplies in bfloat16 refuses, or None."""
    return None if w.dtype == "bfloat16" else "it multiplies in bfloat16: choose that"


def not_float32(w: Int4Linear) -> str | None:
    """Why the float32 rung refuses, or None."""
    return None if w.dtype != "float32" else "in float32 it is `linear` itself"


def torch_takes(device: str) -> Callable[[Int4Linear], str | None]:
    """Why torch's INT4 operator on `device` refuses, or None."""
    return lambda w: only_bfloat16(w) or torch_int4.refusal((w.outputs, w.inputs), 4, w.group_size, device)
