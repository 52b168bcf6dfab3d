"""The pipeline ladder: the same micro-batches on one GPU, and by the stages of a pipeline in two orders.

A pipeline does not shorten the way of one token, it lets several be under way: with m micro-batches a filled and
drained pipeline of p equal stages is p m / (m + p - 1) times as fast as one GPU at the same micro-batch size. 'moved'
tells what micro-batches cost besides bubbles: each reads all weights, where one batch of all sequences reads them once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

from torch import Tensor

from labllm.attention.paged_attend import PagedAttention
from labllm.bench import TOLERANCE, Close, Ladder, Rung, torch_dtype
from labllm.bench.compare import Verdict
from labllm.models.cost import step_cost
from labllm.models.load import from_config
from labllm.models.operations import FUSED
from labllm.models.packed import code_of
from labllm.models.pipeline.cut import stage_memory, stages_of
from labllm.models.pipeline.stage import FixedStage
from labllm.models.pipeline.workload import PipelineCase, Pipelined, inputs, random_cache, reference
from labllm.parallel import rank
from labllm.parallel.clock import RankRunClock
from labllm.parallel.mesh import mesh
from labllm.parallel.on_ranks import on_ranks
from labllm.parallel.pipeline import run_stage
from labllm.parallel.ring import Ring
from labllm.parallel.schedules import SCHEDULES, Schedule
from labllm.parallel.split import split_heads
from labllm.parallel.stopwatch import Stopwatch, gathered
from labllm.parallel.tensor import TensorParallel
from labllm.parallel.timeline import bubble, stage_seconds
from labllm.roofline import DTYPE_BYTES, Cost

KERNEL_FILES = ("add_norm", "gated", "rope_kv_write", "skinny_linear", "split_decode")
CODE = (*code_of(FUSED), PagedAttention, FixedStage, *(f"labllm.kernels.{name}" for name in KERNEL_FILES))


@dataclass(frozen=True)
class Running:
    """A rank's prepared part: `call(watch)` runs it; logits [micro_batches B, V] come out on the last stage's ranks."""

    call: Callable[[Stopwatch], Tensor | None]
    device: str
    depth: int


class Answer(NamedTuple):
    """The logits, where they are, of a model of `depth` layers, and when this rank's tasks began and ended."""

    logits: Tensor | None
    stopwatch: Stopwatch
    depth: int


def run(running: Running) -> Answer:
    """One run of this rank's part; every rank runs its own."""
    stopwatch = Stopwatch(running.device)
    return Answer(running.call(stopwatch), stopwatch, running.depth)


def layers_of(w: Pipelined) -> tuple[range, ...]:
    """Where the workload's model is cut: by bytes in decode, by FLOPs in a prefill."""
    by = (lambda cost: cost.bytes) if w.queries == 1 else (lambda cost: cost.flops)
    return stages_of(w.config, w.stages, w.batch, w.queries, w.context, DTYPE_BYTES[w.dtype], by)


def pipeline(schedule: str, case: PipelineCase, cut: Sequence[range] | None = None) -> Running:
    """This rank's stage, its weights and its cache, under a schedule of SCHEDULES; `cut` in place of `layers_of`."""
    w = case.workload
    grid = mesh(w.stages, w.tensor_parallel)
    ring = Ring.of(grid)
    shared = TensorParallel.of(grid.get_group("tp")) if w.tensor_parallel > 1 else TensorParallel()
    layers = (cut or layers_of(w))[ring.stage]
    return _running(case, ring, layers, shared, SCHEDULES[schedule](w.stages, w.micro_batches))


def one_gpu(case: PipelineCase) -> Running:
    """The whole model on the first rank, one micro-batch after the other; other ranks have nothing to do."""
    w = case.workload
    depth = w.config.num_hidden_layers
    if rank() > 0:
        return Running(lambda watch: None, case.device, depth)
    return _running(case, Ring.alone(), range(depth), TensorParallel(), SCHEDULES["fill-drain"](1, w.micro_batches))


def _running(case: PipelineCase, ring: Ring, layers: range, shared: TensorParallel, schedule: Schedule) -> Running:
    w, config = case.workload, case.workload.config
    parallel = shared if shared.size > 1 else None
    model = from_config(
        config, case.device, torch_dtype(w), case.seed, layers=layers, operations=FUSED, tensor_parallel=parallel
    )
    heads = split_heads(config.num_attention_heads, config.num_key_value_heads, shared.rank, shared.size).kv
    stage = FixedStage(model.with_attend(PagedAttention(random_cache(case, layers, heads))), case.ids, case.steps)

    def call(watch: Stopwatch) -> Tensor | None:
        run_stage(ring, schedule, stage, case.ids, w.steps, watch)
        return stage.logits()

    return Running(call, case.device, config.num_hidden_layers)


@dataclass(frozen=True)
class OfLastStage:
    """Relative error of the logits under the tolerance of a model's depth; a rank without logits has none."""

    close: Close = field(default_factory=lambda: Close(rows=64))

    def __call__(self, out: Answer, reference: Callable[[Any], Any], dtype: str, seed: int) -> Verdict:
        """As `Comparison`."""
        tolerance = TOLERANCE[dtype] * out.depth**0.5
        if out.logits is None:
            return Verdict(0.0, tolerance)
        verdict = self.close(out.logits, reference, dtype, seed)
        return Verdict(verdict.error, tolerance, "" if verdict.error <= tolerance else verdict.reason)


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
    """The largest stage's part of weights and cache, logits, and a layer and the head in float64 for the reference."""
    config, element, last = w.config, DTYPE_BYTES[w.dtype], w.config.num_hidden_layers - 1
    tokens = w.micro_batches * w.batch * w.context
    largest = max(stage_memory(config, layers, tokens, element) for layers in cut) / shared
    wide = stage_memory(config, range(last, last + 1), 0, DTYPE_BYTES["float64"] + element)
    row = config.vocab_size + w.queries * 8 * config.intermediate_size
    return largest + wide + w.micro_batches * w.batch * row * element


def _refuses(w: Pipelined) -> str | None:
    if w.ranks % w.tensor_parallel:
        return f"{w.ranks} ranks make no stages of {w.tensor_parallel} ranks each"
    if w.queries not in (1, w.context):
        return f"a step brings one token a sequence or the whole context: new tokens must be 1 or {w.context}"
    if w.queries > 1 and w.steps > 1:
        return "a prompt is read in one step; set steps to 1"
    return None


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


def _eights(model: str, *micro_batches: int, **fields: Any) -> tuple[Pipelined, ...]:
    base = Pipelined(batch=8, context=1024, model=model, dtype="bfloat16")
    return tuple(replace(base, micro_batches=m, **fields) for m in micro_batches)


PIPELINE = Ladder(
    name="pipeline-parallel",
    title="Micro-batches through the stages of a pipeline",
    workload=Pipelined,
    inputs=inputs,
    cost=_cost,
    reference=reference,
    compare=OfLastStage(),
    metrics=_metrics,
    clock=RankRunClock(most=9),
    ranks=on_ranks,
    rungs=(
        ALONE,
        _rung("fill-drain", "stages work at the same time, on different micro-batches"),
        _rung("continuous", "no drain between steps: a micro-batch enters again as soon as its ids are back"),
    ),
    sizes={
        "fast": (Pipelined(2, batch=1, context=128, steps=2),),
        "small": tuple(Pipelined(m) for m in (1, 2, 4, 8)),
        "full": _eights("Llama-3.1-8B", 1, 2, 3, 4, 6, 8),
    },
)
