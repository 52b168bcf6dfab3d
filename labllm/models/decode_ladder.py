"""The decode-step ladder: a whole model writes one token a sequence, eagerly, fused, and as a CUDA graph.

The floor is its bytes: every weight but the embedding once, keys and values once. How far above it a step stays says
what the host costs: an eager step launches hundreds of kernels, a graph is one call. Weights are random, for speed
depends on shapes alone; `layers` cuts a model that is too large for a test.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from labllm.attention.paged_attend import PagedAttention
from labllm.bench import Ladder, Rung, axis, torch_dtype
from labllm.bench.steady import SteadyClock
from labllm.cache.paged import PagedCache
from labllm.cache.step import Step
from labllm.models.config import ModelConfig
from labllm.models.cost import step_cost
from labllm.models.graphs import DecodeGraphs
from labllm.models.llama import Llama
from labllm.models.load import from_config, plain_twin
from labllm.models.operations import EAGER, FUSED, Operations
from labllm.models.packed import FUSED_KERNELS, code_of
from labllm.models.parts import MODELS
from labllm.models.ran import AsDeep, Ran, Ready, run
from labllm.models.wide import wide_logits
from labllm.roofline import DTYPE_BYTES, Cost

BLOCK_SIZE = 16
WHOLE = 0


@dataclass(frozen=True)
class DecodeStep:
    """One new token for each of `batch` sequences of `context` keys, by the first `layers` of `model` (0: all)."""

    context: int = axis(512, 128, 512, 1024, 2048, 4096, 8192, unit="tokens", label="context")
    batch: int = axis(1, 1, 2, 4, 8, 16, 32, 64, 128, unit="sequences", label="batch")
    layers: int = axis(WHOLE, WHOLE, 1, 2, 4, 8)
    model: str = axis("pico", *MODELS)
    dtype: str = axis("float32", "float32", "float16", "bfloat16")


class StepCase(NamedTuple):
    """A packed model over a filled cache, ids [B] and a step of decodes, on the host and `there` on the device."""

    model: Llama
    ids: Tensor
    step: Step
    there: Step


def shape_of(w: DecodeStep) -> ModelConfig:
    """The model's config, cut to the workload's layers."""
    config = MODELS[w.model]
    layers = config.num_hidden_layers if w.layers == WHOLE else w.layers
    return replace(config, num_hidden_layers=layers, windows=config.windows[:layers])


def _inputs(w: DecodeStep, device: str, seed: int) -> StepCase:
    config, dtype = shape_of(w), torch_dtype(w)
    model = from_config(config, device, dtype, seed, operations=EAGER)
    blocks = -(-w.context // BLOCK_SIZE)
    order = torch.randperm(w.batch * blocks, generator=torch.Generator().manual_seed(seed))
    heads = config.num_key_value_heads, config.head_dim
    cache = PagedCache(config.num_hidden_layers, w.batch * blocks, BLOCK_SIZE, *heads, dtype, device)
    cache.pool.normal_(generator=torch.Generator(device).manual_seed(seed))
    step = Step.paged(order.view(w.batch, blocks).tolist(), [w.context - 1] * w.batch, [1] * w.batch, BLOCK_SIZE)
    ids = torch.arange(w.batch, device=device) % config.vocab_size
    return StepCase(model.with_attend(PagedAttention(cache)), ids, step, step.to(device))


def _reference(case: StepCase, rows: Tensor | None) -> Tensor:
    logits = wide_logits(plain_twin(case.model), case.ids, case.there)
    return logits if rows is None else logits[rows]


def _ready(case: StepCase, call: Callable[[], Tensor]) -> Ready:
    return Ready(call, case.model.config.num_hidden_layers, case.ids.device.type)


def _eager(case: StepCase) -> Ready:
    model = plain_twin(case.model)
    return _ready(case, lambda: model(case.ids, case.there))


def _with(operations: Operations, case: StepCase) -> Ready:
    model = case.model.with_operations(operations)
    return _ready(case, lambda: model(case.ids, case.there))


def _graphed(case: StepCase) -> Ready:
    """As an engine runs it: the step's integers travel from the host each time."""
    batch = len(case.ids)
    graphs = DecodeGraphs(case.model.with_operations(FUSED), batch, case.step.max_seq_len, [batch])
    return _ready(case, lambda: graphs.run(case.ids, case.step))


def _cost(w: DecodeStep) -> Cost:
    return sum(step_cost(shape_of(w), w.batch, 1, w.context, DTYPE_BYTES[w.dtype]).values(), Cost())


def _input_bytes(w: DecodeStep) -> float:
    """What must move, and the embedding."""
    config = shape_of(w)
    return _cost(w).bytes + config.vocab_size * config.hidden_size * DTYPE_BYTES[w.dtype]


def _memory(w: DecodeStep) -> float:
    """Logits, and gates and ups of one layer."""
    config = shape_of(w)
    return w.batch * (config.vocab_size + 8 * config.intermediate_size) * DTYPE_BYTES[w.dtype]


def _metrics(w: DecodeStep, out: Ran, seconds: float | None) -> dict[str, tuple[float, str]]:
    speed = {"throughput": (w.batch / seconds, "tokens/s")} if seconds else {}
    return speed | out.counts()


def _rung(
    name: str,
    about: str,
    prepare: Callable[[StepCase], Ready],
    operations: Operations | None,
    kernels: tuple[str, ...] = (),
    **more: Any,
) -> Rung:
    sources = *code_of(operations), PagedAttention, *(f"labllm.kernels.{kernel}" for kernel in kernels)
    return Rung(name, run, prepare, about, memory=_memory, sources=sources, **more)


DECODE_STEP = Ladder(
    name="decode-step",
    title="A decode step of a whole model",
    workload=DecodeStep,
    inputs=_inputs,
    input_bytes=_input_bytes,
    cost=_cost,
    reference=_reference,
    compare=AsDeep(),
    metrics=_metrics,
    clock=SteadyClock(),
    rungs=(
        _rung("eager", "one operation after the other, each launched by the host", _eager, None),
        _rung("fused", "what surrounds the products in few launches", partial(_with, FUSED), FUSED, FUSED_KERNELS),
        _rung("cuda graph", "one call of the host a step", _graphed, FUSED, FUSED_KERNELS, needs=("cuda", "triton")),
    ),
    sizes={
        "fast": (DecodeStep(128),),
        "small": tuple(DecodeStep(512, b) for b in (1, 4, 16)),
        "full": (*(DecodeStep(1024, b, WHOLE, "Llama-3.1-8B", "bfloat16") for b in (1, 8, 32, 128)),),
    },
)
