"""The decoder-layer ladder: one whole layer from its plain form, through each fusion, to a CUDA graph.

Every rung runs the same layer in the middle of a model, over the same paged cache and with the same attention, so that
they differ in what stands around it. The first fusions save launches and passes over activations; the graph saves the
launches that are left. Where the GEMMs are bound by their arithmetic, in a long prefill, none of it shows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from labllm import fusion
from labllm.attention.attend import CacheAttend
from labllm.attention.paged_attend import PagedAttention
from labllm.bench import CannotRun, Ladder, Rung
from labllm.bench.steady import SteadyClock
from labllm.cache.step import Step
from labllm.fusion import compiled
from labllm.models.layer_case import INDEX, DecoderLayer, LayerCase, inputs, reference
from labllm.models.layer_cost import FUSIONS, layer_cost, layer_moved
from labllm.models.llama import Llama
from labllm.models.load import plain_twin
from labllm.models.operations import EAGER, FUSED, INSIDE, KERNELS, Hidden, Operations
from labllm.models.packed import code_of
from labllm.models.parts import MODELS
from labllm.models.ran import AsDeep, Ran, Ready, run
from labllm.models.replay import captured
from labllm.roofline import DTYPE_BYTES, Cost


def _ready(case: LayerCase, call: Callable[[], Hidden]) -> Ready:
    return Ready(call, 1, case.h.branch.device.type)


def _call(model: Llama, h: Hidden, step: Step) -> Callable[[], Hidden]:
    """The layer alone: a model looks its angles up once a step."""
    angles = model.angles(step)
    return lambda: model.layer(INDEX, h, step.positions, step, angles)


def _plain(case: LayerCase) -> Ready:
    return _ready(case, _call(plain_twin(case.model), case.h.total, case.step))


def _packed(operations: Operations, case: LayerCase) -> Ready:
    closed = operations in (INSIDE, FUSED) and len(case.h.branch) == 1  # as such a layer hands its state on
    return _ready(case, _call(case.model.with_operations(operations), case.h.total if closed else case.h, case.step))


def _graphed(operations: Operations, case: LayerCase) -> Ready:
    return _ready(case, captured(_packed(operations, case).call))


def _compiled(case: LayerCase) -> Ready:
    """The compiler works on what stands around attention, which stays the kernels' own."""
    model = plain_twin(case.model)
    attend: CacheAttend = model.attend
    layer = torch.compile(model.model.layers[str(INDEX)], dynamic=False)
    outside = torch.compiler.disable(attend)
    h, step, angles = case.h.total, case.step, model.angles(case.step)

    def call() -> Tensor:
        return layer(h, angles.cos, angles.sin, outside, step)

    try:
        call()
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:
        raise CannotRun(f"torch.compile cannot compile here: {str(error).strip().splitlines()[0]}") from error
    return _ready(case, call)


def _shape(w: DecoderLayer) -> tuple[Any, ...]:
    return w.batch, w.queries, w.context, DTYPE_BYTES[w.dtype]


def _moved(fused: int) -> Callable[[DecoderLayer], Cost]:
    """The first `fused` of FUSIONS."""
    return lambda w: layer_moved(MODELS[w.model], FUSIONS[:fused], *_shape(w))


def _inside(w: DecoderLayer) -> Cost:
    return _moved(4 if _many(w) else 5)(w)


def _many(w: DecoderLayer) -> str | None:
    return None if w.batch * w.queries == 1 else "the products draw in what surrounds them for a single token"


def _compiles_long(w: DecoderLayer) -> str | None:
    one = w.batch * w.queries == 1
    return None if one else "every shape is compiled anew, which takes long: choose one sequence and one new token"


def _whole_prompts(w: DecoderLayer) -> str | None:
    if w.queries in (1, w.context):
        return None
    return f"a step brings one token a sequence or the whole context: new tokens must be 1 or {w.context}"


def _input_bytes(w: DecoderLayer) -> float:
    """What must move, and activations: the widest hold gates and ups."""
    return layer_cost(MODELS[w.model], *_shape(w)).bytes + _activations(w)


def _activations(w: DecoderLayer) -> float:
    return 8.0 * w.batch * w.queries * MODELS[w.model].intermediate_size * DTYPE_BYTES[w.dtype]


def _metrics(w: DecoderLayer, out: Ran, seconds: float | None) -> dict[str, tuple[float, str]]:
    return out.counts()


def _rung(
    name: str,
    about: str,
    prepare: Callable[[LayerCase], Ready],
    operations: Operations | None,
    fused: int,
    *kernels: str,
    **more: Any,
) -> Rung:
    sources = *code_of(operations), PagedAttention, *(f"labllm.kernels.{kernel}" for kernel in kernels)
    limits = {"needs": ("triton",)} if kernels else {}
    return Rung(
        name,
        run,
        prepare,
        about,
        **{"refuses": _whole_prompts, "moved": _moved(fused), "memory": _activations, "sources": sources}
        | limits
        | more,
    )


NORM = replace(EAGER, name="add and norm", add_norm=fusion.add_rms_norm)
GATE = replace(NORM, name="SwiGLU", gated=fusion.swiglu)
SOURCES = "add_norm", "gated", "rope_kv_write"

DECODER_LAYER = Ladder(
    name="decoder-layer",
    title="A decoder layer, fused step by step",
    workload=DecoderLayer,
    inputs=inputs,
    input_bytes=_input_bytes,
    cost=lambda w: layer_cost(MODELS[w.model], *_shape(w)),
    reference=reference,
    compare=AsDeep(),
    metrics=_metrics,
    clock=SteadyClock(),
    rungs=(
        _rung("eager", "one operation after the other: every result is written and read again", _plain, None, 0),
        _rung("packed projections", "q, k, v in one GEMM, gate and up in one", partial(_packed, EAGER), EAGER, 1),
        _rung("+ add and norm", "residual add and norm in one launch", partial(_packed, NORM), NORM, 2, *SOURCES[:1]),
        _rung("+ SwiGLU", "the gate in one launch", partial(_packed, GATE), GATE, 3, *SOURCES[:2]),
        _rung(
            "+ RoPE and write",
            "turned keys go to their pages in one launch",
            partial(_packed, KERNELS),
            KERNELS,
            4,
            *SOURCES,
        ),
        _rung(
            "+ into the products",
            "norm, gate and residual add inside the products of a single token: no launch of their own",
            partial(_packed, INSIDE),
            INSIDE,
            5,
            *SOURCES[2:],
            "skinny_linear",
            refuses=lambda w: _whole_prompts(w) or _many(w),
        ),
        _rung(
            "cuda graph of plain products",
            "the launches of '+ RoPE and write' are started as one",
            partial(_graphed, KERNELS),
            KERNELS,
            4,
            *SOURCES,
            needs=("cuda", "triton"),
            refuses=lambda w: _whole_prompts(w) or _many(w),
        ),
        _rung(
            "cuda graph",
            "the launches that are left are started as one",
            partial(_graphed, FUSED),
            FUSED,
            4,
            *SOURCES,
            "few_linear",
            "skinny_linear",
            needs=("cuda", "triton"),
            moved=_inside,
        ),
        _rung(
            "torch.compile",
            "the compiler fuses what it finds around attention",
            _compiled,
            None,
            4,
            refuses=lambda w: _whole_prompts(w) or _compiles_long(w) or compiled.too_slow(w),
        ),
    ),
    sizes={
        "fast": (DecoderLayer(128),),
        "small": (*(DecoderLayer(512, 1, b) for b in (1, 4, 16)), DecoderLayer(128, 128)),
        "full": (
            *(DecoderLayer(1024, 1, b, "Llama-3.1-8B", "bfloat16") for b in (1, 8, 32, 128)),
            DecoderLayer(2048, 2048, 1, "Llama-3.1-8B", "bfloat16"),
        ),
    },
)
