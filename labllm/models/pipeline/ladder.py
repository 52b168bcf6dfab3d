"""The pipeline ladder: the same micro-batches on one GPU, and by the stages of a pipeline in two orders.

A pipeline does not shorten the way of one token, it lets several be under way: with m micro-batches a filled and
drained pipeline of p equal stages is p m / (m + p - 1) times as fast as one GPU at the same micro-batch size. 'moved'
tells what micro-batches cost besides bubbles: each reads all weights, where one batch of all sequences reads them once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from labllm.attention.paged_attend import PagedAttention
from labllm.bench import Ladder, Rung
from labllm.models.cost import step_cost
from labllm.models.operations import FUSED
from labllm.models.packed import FUSED_KERNELS, code_of
from labllm.models.pipeline.cut import stage_memory
from labllm.models.pipeline.running import Answer, OfLastStage, layers_of, one_gpu, pipeline, run
from labllm.models.pipeline.stage import FixedStage
from labllm.models.pipeline.workload import Pipelined, inputs, reference
from labllm.parallel.clock import RankRunClock
from labllm.parallel.on_ranks import on_ranks
from labllm.parallel.push import PUSH_KERNELS, push
from labllm.parallel.schedules import SCHEDULES
from labllm.parallel.stopwatch import gathered
from labllm.parallel.timeline import bubble, stage_seconds
from labllm.roofline import DTYPE_BYTES, Cost

CODE = (*code_of(FUSED), PagedAttention, FixedStage, *(f"labllm.kernels.{name}" for name in FUSED_KERNELS))


def _metrics(w: Pipelined, out: Answer, seconds: float | None) -> Mapping[str, tuple[float, str]]:
    """Tokens a second; of the run, the bubble and the mean seconds of each stage's tasks."""
    tokens = w.micro_batches * w.batch * w.queries * w.steps
    speed = {"throughput": (tokens / seconds, "tokens/s")} if seconds else {}
    spans = gathered(out.stopwatch.spans())
    stages = {f"stage {s}": (took, "s") for s, took in enumerate(stage_seconds(spans))}
    return speed | {"bubble": (bubble(spans), "%")} | stages


def _cost(w: Pipelined) -> Cost:
    """A rank's share: weights once a step for all sequences together, keys and values once."""
    return w.steps / w.ranks * _step(w, w.micro_batches * w.batch)


def _moved(ranks: int, w: Pipelined) -> Cost:
    """What each of `ranks` ranks moves: weights once a step for each micro-batch."""
    return w.steps * w.micro_batches / ranks * _step(w, w.batch)


def _step(w: Pipelined, batch: int) -> Cost:
    return sum(step_cost(w.config, batch, w.queries, w.context, DTYPE_BYTES[w.dtype]).values(), Cost())


def _memory(cut: Sequence[range], shared: int, w: Pipelined) -> float:
    """The largest stage's part of weights and cache, what is computed, and a layer and the head in float64."""
    config, element, last = w.config, DTYPE_BYTES[w.dtype], w.config.num_hidden_layers - 1
    tokens = w.micro_batches * w.batch * w.context
    largest = max(stage_memory(config, layers, tokens, element) for layers in cut) / shared
    wide = stage_memory(config, range(last, last + 1), 0, DTYPE_BYTES["float64"] + element)
    kept = w.micro_batches * w.batch * (config.vocab_size + w.queries * config.hidden_size)
    return largest + wide + element * (kept + w.batch * w.queries * 8 * config.intermediate_size)


def _refuses(w: Pipelined) -> str | None:
    if w.ranks % w.tensor_parallel:
        return f"{w.ranks} ranks make no stages of {w.tensor_parallel} ranks each"
    if w.queries not in (1, w.context):
        return f"a step brings one token a sequence or the whole context: new tokens must be 1 or {w.context}"
    if w.queries > 1 and w.steps > 1:
        return "a prompt is read in one step; set steps to 1"
    return None


def _alone_in_its_stage(w: Pipelined) -> str | None:
    return _refuses(w) or ("a stage of one rank has nothing to sum" if w.tensor_parallel == 1 else None)


def _rung(schedule: str, about: str) -> Rung:
    return Rung(
        schedule,
        run,
        partial(pipeline, schedule),
        about,
        refuses=_refuses,
        moved=lambda w: _moved(w.ranks, w),
        memory=lambda w: _memory(layers_of(w), w.tensor_parallel, w),
        sources=(*CODE, SCHEDULES[schedule]),
    )


def _pushed(rung: Rung) -> Rung:
    """The rung with sums over a stage's ranks by our own kernel."""
    return replace(
        rung,
        name=f"{rung.name}, push",
        prepare=partial(pipeline, rung.name, all_reduce="push"),
        about="sums within a stage in one message each",
        needs=("cuda", "triton"),
        refuses=_alone_in_its_stage,
        sources=(*rung.sources, push, *(f"labllm.kernels.{name}" for name in PUSH_KERNELS)),
    )


ALONE = Rung(
    "one GPU",
    run,
    one_gpu,
    "all layers in one place, one micro-batch after the other",
    refuses=_refuses,
    moved=partial(_moved, 1),
    memory=lambda w: _memory([range(w.config.num_hidden_layers)], 1, w),
    sources=CODE,
)


FILL_DRAIN = _rung("fill-drain", "stages work at the same time, on different micro-batches")
CONTINUOUS = _rung("continuous", "no drain between steps: a micro-batch enters again as soon as its ids are back")


def _sweep(model: str, micro_batches: Sequence[int], **fields: Any) -> tuple[Pipelined, ...]:
    base = Pipelined(batch=8, context=1024, model=model, dtype="bfloat16")
    return tuple(replace(base, micro_batches=m, **fields) for m in micro_batches)


def _grid(ranks: int, tensor_parallel: int, micro_batches: Sequence[int]) -> tuple[Pipelined, ...]:
    """Both large models on such stages: decode at 1, 32 and 128 sequences a micro-batch, and prefill of 4k tokens."""
    where = {"ranks": ranks, "tensor_parallel": tensor_parallel}
    prompts = {"context": 4096, "queries": 4096, "steps": 1, "batch": 1}
    return tuple(
        workload
        for model in ("Llama-3.1-8B", "Llama-3.1-70B")
        for workload in (
            *_sweep(model, micro_batches, batch=32, **where),
            *_sweep(model, (1,), batch=1, **where),
            *_sweep(model, (1,), batch=128, **where),
            *_sweep(model, (1, 8), **where, **prompts),
        )
    )


TWO = (
    *_sweep("Llama-3.1-8B", (1, 2, 3, 4, 6, 8, 16)),
    *_sweep("Llama-3.1-8B", (1, 8), batch=32),
    *_sweep("Llama-3.1-8B", (1, 4, 8), context=2048, queries=2048, steps=1, batch=1),
)

PIPELINE = Ladder(
    name="pipeline-parallel",
    title="Micro-batches through the stages of a pipeline",
    workload=Pipelined,
    inputs=inputs,
    cost=_cost,
    reference=reference,
    compare=OfLastStage(),
    metrics=_metrics,
    clock=RankRunClock(budget=1.0, most=7),
    ranks=on_ranks,
    rungs=(ALONE, FILL_DRAIN, CONTINUOUS, _pushed(CONTINUOUS)),
    sizes={
        "fast": (Pipelined(2, batch=1, context=128, steps=2),),
        "small": tuple(Pipelined(m) for m in (1, 2, 4, 8)),
        "full": TWO,
        "four": (*_sweep("Llama-3.1-70B", (1, 4, 16)), *_grid(4, 2, (1, 8))),
        "eight": (*_sweep("Llama-3.1-70B", (1, 4, 16)), *_grid(8, 4, (1, 2, 4, 8, 16))),
    },
)
