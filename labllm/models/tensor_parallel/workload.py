"""A step of a model whose layers are shared by ranks, as a workload; inputs and the float64 answer are a pipeline's.

Weights, keys and values are drawn from the seed and their place in the model, so each rank makes its own part and the
reference is computed one layer at a time. Compulsory is one rank's share: what `ranks` devices must at least move.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import torch
from torch import Tensor

from labllm.bench import axis
from labllm.models.config import ModelConfig
from labllm.models.cost import step_cost
from labllm.models.pipeline import workload as pipeline
from labllm.models.pipeline.workload import MODELS, PipelineCase, Pipelined
from labllm.models.tensor_parallel.shards import local_config
from labllm.parallel.split import split_vocabulary
from labllm.roofline import DTYPE_BYTES, Cost


@dataclass(frozen=True)
class TensorParallelStep:
    """One step of `model` on `ranks` ranks: `batch` sequences bring `queries` tokens and see `context` keys."""

    ranks: int = axis(2, 1, 2, 4, 8, label="ranks")
    batch: int = axis(1, 1, 2, 4, 8, 16, 32, 64, 128, unit="sequences", label="batch")
    queries: int = axis(1, 1, 128, 512, 2048, 4096, 8192, unit="tokens", label="new tokens a sequence")
    context: int = axis(512, 128, 512, 1024, 2048, 4096, 8192, unit="tokens", label="context")
    model: str = axis("pico", *MODELS)
    dtype: str = axis("float32", "float32", "float16", "bfloat16")

    @property
    def config(self) -> ModelConfig:
        """The whole model's shape."""
        return MODELS[self.model]

    @property
    def as_pipeline(self) -> Pipelined:
        """The same step as one micro-batch of a pipeline with a single stage."""
        shape = {name: getattr(self, name) for name in ("ranks", "batch", "queries", "context", "model", "dtype")}
        return Pipelined(micro_batches=1, steps=1, tensor_parallel=self.ranks, **shape)


def inputs(w: TensorParallelStep, device: str, seed: int) -> PipelineCase:
    """The step's ids and where they go; no weights yet."""
    return pipeline.inputs(w.as_pipeline, device, seed)


def reference(case: PipelineCase, rows: Tensor | None) -> Tensor:
    """Logits [batch, V] in float64, or `rows` of them."""
    return _logits(case.workload, case.device, case.seed, None if rows is None else tuple(rows.tolist()))


@lru_cache(maxsize=1)  # all rungs of a case are compared with it
def _logits(w: Pipelined, device: str, seed: int, rows: tuple[int, ...] | None) -> Tensor:
    return pipeline.reference(pipeline.inputs(w, device, seed), None if rows is None else torch.tensor(rows))


def rank_cost(w: TensorParallelStep) -> Cost:
    """FLOPs and bytes of one rank's share of the step."""
    config = replace(
        local_config(w.config, 0, w.ranks), vocab_size=split_vocabulary(w.config.vocab_size, 0, w.ranks).rows
    )
    return sum(step_cost(config, w.batch, w.queries, w.context, DTYPE_BYTES[w.dtype]).values(), Cost())


def whole_cost(w: TensorParallelStep) -> Cost:
    """FLOPs and bytes of the step on one device."""
    return rank_cost(replace(w, ranks=1))


def refuses(w: TensorParallelStep) -> str | None:
    """Why no rung can take the workload, or None."""
    if w.queries not in (1, w.context):
        return f"a step brings one token a sequence or the whole context: new tokens must be 1 or {w.context}"
    try:
        local_config(w.config, 0, w.ranks)
    except ValueError as error:
        return str(error)
    return None
