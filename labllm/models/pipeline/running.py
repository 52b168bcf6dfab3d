"""A rank's part of a run of the pipeline ladder, prepared once and run many times, and how its answer is judged.

Only the ranks of the last stage have logits, so only they compare; every rank stamps its own tasks, and the stamps
together are the run's timeline (`stopwatch.gathered`). Invariant: all ranks prepare and run the same workload at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from torch import Tensor

from labllm.attention.paged_attend import PagedAttention
from labllm.bench import TOLERANCE, Close, torch_dtype
from labllm.bench.compare import Verdict
from labllm.models.load import from_config
from labllm.models.operations import FUSED
from labllm.models.pipeline.cut import stages_of
from labllm.models.pipeline.stage import FixedStage
from labllm.models.pipeline.workload import PipelineCase, Pipelined, random_cache
from labllm.parallel import rank
from labllm.parallel.mesh import mesh
from labllm.parallel.pipeline import run_stage
from labllm.parallel.ring import Ring
from labllm.parallel.schedules import SCHEDULES, Schedule
from labllm.parallel.split import split_heads
from labllm.parallel.stopwatch import Stopwatch
from labllm.parallel.tensor import TensorParallel
from labllm.roofline import DTYPE_BYTES


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


def pipeline(
    schedule: str, case: PipelineCase, cut: Sequence[range] | None = None, all_reduce: str = "torch.distributed"
) -> Running:
    """This rank's stage, its weights and its cache, under a schedule of SCHEDULES.

    `cut` stands in place of `layers_of`; `all_reduce` is the strategy of the ranks that share a stage.
    """
    w = case.workload
    grid = mesh(w.stages, w.tensor_parallel)
    ring = Ring.of(grid)
    shared = TensorParallel.of(grid.get_group("tp"), all_reduce) if w.tensor_parallel > 1 else TensorParallel()
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
        return self.close(out.logits, reference, dtype, seed).under(tolerance)
