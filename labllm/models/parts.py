"""Where a layer's time goes: each part of a Transformer layer as a workload of its own.

One rung, torch as it comes: this ladder compares parts and not implementations. Summed with their multiplicity (a
model has its layers many times and its head once) they give the time share of GEMMs and of attention over context and
batch. Attention alone grows with context; the linear parts see only how many tokens are in the batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F

from labllm.attention.dense import reference as attention_reference
from labllm.bench import Ladder, Rung, axis, torch_dtype
from labllm.models import cost
from labllm.models.cost import PARTS_OF_A_MODEL
from labllm.models.pico.shape import PICO
from labllm.models.shapes import SHAPES
from labllm.roofline import DTYPE_BYTES, Cost

MODELS = {"pico": PICO, "Llama-3.1-8B": SHAPES["Llama-3.1-8B"]}


@dataclass(frozen=True)
class LayerPart:
    """`part` of one layer of `model` for `batch` sequences of `queries` new tokens that see `context` keys."""

    part: str = axis("gate and up", *PARTS_OF_A_MODEL)
    context: int = axis(512, 128, 512, 2048, 8192, 32768, unit="tokens", label="context")
    queries: int = axis(1, 1, 128, 512, 2048, 8192, unit="tokens", label="new tokens a sequence")
    batch: int = axis(1, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, unit="sequences", label="batch")
    model: str = axis("pico", *MODELS)
    dtype: str = axis("float32", "float32", "float16", "bfloat16")


class Part(NamedTuple):
    """What a part computes: `function(*operands)`; the first operand's rows are the output's rows."""

    function: Callable[..., torch.Tensor]
    operands: tuple[torch.Tensor, ...]


def sizes_of(w: LayerPart) -> tuple[int, int]:
    """(inputs, outputs) of a linear part."""
    return cost.linear_sizes(MODELS[w.model], w.part)


def times_in_model(w: LayerPart) -> int:
    """How often a model runs the part in one step."""
    return cost.times_in_model(MODELS[w.model], w.part)


def part_cost(w: LayerPart) -> Cost:
    """Compulsory FLOPs and bytes of the part."""
    return cost.part_cost(MODELS[w.model], w.part, w.batch, w.queries, w.context, DTYPE_BYTES[w.dtype])


def _norm(h: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return F.rms_norm(h, (h.shape[-1],), weight)


def _attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return F.scaled_dot_product_attention(q, k, v, is_causal=q.shape[2] > 1, enable_gqa=True)


def _inputs(w: LayerPart, device: str, seed: int) -> Part:
    c, tokens = MODELS[w.model], w.batch * w.queries
    generator = torch.Generator(device).manual_seed(seed)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(shape, device=device, dtype=torch_dtype(w), generator=generator)

    if w.part == "attention":
        kv = (w.batch, c.num_key_value_heads, w.context, c.head_dim)
        return Part(_attention, (draw(w.batch, c.num_attention_heads, w.queries, c.head_dim), draw(*kv), draw(*kv)))
    if w.part == "norm":
        return Part(_norm, (draw(tokens, c.hidden_size), draw(c.hidden_size)))
    inputs, outputs = sizes_of(w)
    return Part(F.linear, (draw(tokens, inputs), draw(outputs, inputs) * inputs**-0.5))


def _reference(part: Part, rows: Any) -> torch.Tensor:
    first, *others = part.operands
    if part.function is _attention:
        return attention_reference(first, *others, rows, causal=first.shape[2] > 1)
    first = first if rows is None else first[rows]
    return part.function(first.double(), *(other.double() for other in others))


def _refuses(w: LayerPart) -> str | None:
    if w.queries not in (1, w.context):
        return f"a step brings one token a sequence or the whole context: new tokens must be 1 or {w.context}"
    return None


def _whole(model: str, dtype: str, contexts: tuple[int, ...], batches: tuple[int, ...]) -> tuple[LayerPart, ...]:
    """Decode at every context and batch, prefill of one sequence at every context; all parts of each."""
    steps = [LayerPart("norm", c, 1, b, model, dtype) for c in contexts for b in batches]
    steps += [LayerPart("norm", c, c, 1, model, dtype) for c in contexts if c <= 8192]
    return tuple(replace(step, part=part) for step in steps for part in PARTS_OF_A_MODEL)


PARTS = Ladder(
    name="layer-parts",
    title="Parts of a Transformer layer",
    workload=LayerPart,
    inputs=_inputs,
    input_bytes=lambda w: part_cost(w).bytes,
    cost=part_cost,
    reference=_reference,
    rungs=(
        Rung(
            "torch",
            lambda part: part.function(*part.operands),
            about="one library call a part, nothing fused",
            refuses=_refuses,
            sources=(_attention,),
        ),
    ),
    sizes={
        "fast": _whole("pico", "float32", (128,), (1,)),
        "small": _whole("pico", "float32", (128, 512, 2048), (1, 16)),
        "full": (
            *_whole("pico", "bfloat16", (512, 2048), (1, 64)),
            *_whole("Llama-3.1-8B", "bfloat16", (512, 2048, 8192, 32768), (1, 16, 64)),
            *(LayerPart("gate and up", 512, 1, b, "Llama-3.1-8B", "bfloat16") for b in (2, 4, 8, 32, 128, 256, 512)),
        ),
    },
)
