"""The tensor-parallel ladder: a step of a model whose every layer is shared by ranks, from plain sums to fused ones.

Each rank reads 1 / ranks of the weights and of the cache. What remains is two sums over ranks a layer: in decode they
are kilobytes, so their latency, their launches and what waits for them decide how much of the gain is left; in a
prefill they are megabytes beside products that take far longer. The first rung is the whole model on one device, while
the others wait; a rung's efficiency is its time divided by ranks times this rung's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from torch import Tensor

from labllm.attention.paged_attend import PagedAttention
from labllm.bench import Ladder, Rung, torch_dtype
from labllm.bench.record import Record
from labllm.models.graphs import DecodeGraphs
from labllm.models.llama import Llama
from labllm.models.load import from_config
from labllm.models.operations import FUSED, Operations
from labllm.models.packed import FUSED_KERNELS, code_of
from labllm.models.pipeline.running import OfLastStage
from labllm.models.pipeline.workload import PipelineCase, random_cache
from labllm.models.tensor_parallel.model import TensorParallelLlama
from labllm.models.tensor_parallel.sequence import sequence_parallel
from labllm.models.tensor_parallel.summed import summed_by_products, summed_in_norms
from labllm.models.tensor_parallel.workload import (
    TensorParallelStep,
    inputs,
    rank_cost,
    reference,
    refuses,
    whole_cost,
)
from labllm.parallel import rank
from labllm.parallel.clock import RankClock
from labllm.parallel.linear import RowParallelLinear
from labllm.parallel.on_ranks import on_ranks
from labllm.parallel.push import PUSH_KERNELS
from labllm.parallel.split import split_heads
from labllm.parallel.sum_linear import SumLinear
from labllm.parallel.sum_norm import SumAddNorm
from labllm.parallel.tensor import TensorParallel
from labllm.roofline import DTYPE_BYTES

ONE_GPU = "one GPU"
MOST_IN_NORMS = 128  # tokens whose sums go through the norms: beyond, bytes count and not latency
Bundle = Callable[[TensorParallel, PipelineCase], Operations]


class Answer(NamedTuple):
    """Logits [B, V] of a model of `depth` layers; None on a rank that had nothing to do."""

    logits: Tensor | None
    depth: int


@dataclass(frozen=True)
class Running:
    """A rank's prepared step."""

    call: Callable[[], Tensor | None]
    depth: int


def run(running: Running) -> Answer:
    """One step; every rank runs its own."""
    return Answer(running.call(), running.depth)


def one_gpu(case: PipelineCase) -> Running:
    """The whole model on the first rank, its decode step as a graph where there are graphs."""
    config = case.workload.config
    if rank() > 0:
        return Running(lambda: None, config.num_hidden_layers)
    model = from_config(config, case.device, torch_dtype(case.workload), case.seed, operations=FUSED)
    return _running(case, model, TensorParallel(), graphed=True)


def shared(bundle: Bundle | None, graphed: bool, all_reduce: str, case: PipelineCase) -> Running:
    """This rank's share, its operations those of `bundle` (None: plain layers)."""
    w = case.workload
    ranks = TensorParallel.of(all_reduce=all_reduce) if w.ranks > 1 else TensorParallel()
    operations = None if bundle is None else bundle(ranks, case)
    dtype = torch_dtype(w)
    model = from_config(w.config, case.device, dtype, case.seed, operations=operations, tensor_parallel=ranks)
    return _running(case, model, ranks, graphed)


def _running(case: PipelineCase, model: Llama, ranks: TensorParallel, graphed: bool) -> Running:
    (ids,), (step,), config = case.ids, case.steps, case.workload.config
    heads = split_heads(config.num_attention_heads, config.num_key_value_heads, ranks.rank, ranks.size).kv
    cache = random_cache(case, range(config.num_hidden_layers), heads)
    model = model.with_attend(PagedAttention(cache))
    if graphed and step.decodes:
        graphs = DecodeGraphs(model, len(ids), step.max_seq_len, [len(ids)])
        host_ids, host_step = ids.cpu(), step.to("cpu")
        return Running(lambda: graphs.run(host_ids, host_step), config.num_hidden_layers)
    return Running(lambda: model(ids, step), config.num_hidden_layers)


def _fused(ranks: TensorParallel, case: PipelineCase) -> Operations:
    return FUSED


def _sequence(ranks: TensorParallel, case: PipelineCase) -> Operations:
    return sequence_parallel(FUSED, ranks)


def _sum_norm(ranks: TensorParallel, case: PipelineCase) -> SumAddNorm:
    config, dtype = case.workload.config, torch_dtype(case.workload)
    return SumAddNorm(config.hidden_size, MOST_IN_NORMS, dtype, ranks.group)


def _in_norms(ranks: TensorParallel, case: PipelineCase) -> Operations:
    return summed_in_norms(FUSED, _sum_norm(ranks, case))


def _by_products(ranks: TensorParallel, case: PipelineCase) -> Operations:
    sum_linear = SumLinear(case.workload.config.hidden_size, torch_dtype(case.workload), ranks.group)
    return summed_by_products(FUSED, _sum_norm(ranks, case), sum_linear)


def _metrics(w: TensorParallelStep, out: Answer, seconds: float | None) -> Mapping[str, tuple[float, str]]:
    speed = {"throughput": (w.batch * w.queries / seconds, "tokens/s")} if seconds else {}
    return speed | {"all-reduce": (float(w.batch * w.queries * w.config.hidden_size * DTYPE_BYTES[w.dtype]), "B")}


def _memory(w: TensorParallelStep) -> float:
    """A rank's weights and cache, logits, the widest activations, and a layer and the head in float64."""
    config, element = w.config, DTYPE_BYTES[w.dtype]
    wide = 8.0 * config.hidden_size * (4 * config.intermediate_size + config.vocab_size)
    rows = w.batch * (config.vocab_size + w.queries * 8 * config.intermediate_size) * element
    return rank_cost(w).bytes + 2 * config.vocab_size * config.hidden_size * element + wide + rows


def _memory_alone(w: TensorParallelStep) -> float:
    return _memory(w) + whole_cost(w).bytes - rank_cost(w).bytes


def _decodes(w: TensorParallelStep) -> str | None:
    return refuses(w) or (None if w.queries == 1 else "a graph holds a step of decodes: new tokens must be 1")


def _few(w: TensorParallelStep) -> str | None:
    return _among_ranks(w) or (None if w.batch <= MOST_IN_NORMS else f"it has room for {MOST_IN_NORMS} tokens")


def _among_ranks(w: TensorParallelStep) -> str | None:
    return _decodes(w) or ("one rank has nothing to sum with" if w.ranks == 1 else None)


def _single(w: TensorParallelStep) -> str | None:
    return _few(w) or (None if w.batch == 1 else "the products draw in what surrounds them for a single token")


def _rung(
    name: str, about: str, bundle: Bundle | None, all_reduce: str = "torch.distributed", graphed: bool = False,
    kernels: Iterable[str] = (), **more: Any,
) -> Rung:  # fmt: skip
    files = tuple(f"labllm.kernels.{kernel}" for kernel in (*(FUSED_KERNELS if bundle else ()), *kernels))
    sources = *code_of(FUSED if bundle else None), PagedAttention, TensorParallelLlama, RowParallelLinear, *files
    prepare = partial(shared, bundle, graphed, all_reduce)
    return Rung(name, run, prepare, about, **{"memory": _memory, "refuses": refuses, "sources": sources} | more)


def _large(ranks: int, batch: int, queries: int = 1, model: str = "Llama-3.1-8B") -> TensorParallelStep:
    return TensorParallelStep(ranks, batch, queries, queries if queries > 1 else 1024, model, "bfloat16")


def _over(*ranks: int) -> tuple[TensorParallelStep, ...]:
    """Decode at three batches and a prefill, of two models, on ever more ranks."""
    steps, models = ((1, 1), (32, 1), (128, 1), (1, 4096)), ("Llama-3.1-8B", "Llama-3.1-70B")
    return tuple(_large(n, batch, queries, model) for model in models for n in ranks for batch, queries in steps)


GPU = {"needs": ("cuda", "triton"), "graphed": True}

TENSOR_PARALLEL = Ladder(
    name="tensor-parallel",
    title="A step with every layer shared by ranks",
    workload=TensorParallelStep,
    inputs=inputs,
    cost=rank_cost,
    reference=reference,
    compare=OfLastStage(),
    metrics=_metrics,
    clock=RankClock(cold=False, graphed=False),
    ranks=on_ranks,
    rungs=(
        Rung(
            ONE_GPU, run, one_gpu, "the whole model on one device; a graph in decode", refuses=refuses,
            moved=whole_cost, memory=_memory_alone,
            sources=(*code_of(FUSED), PagedAttention, *(f"labllm.kernels.{name}" for name in FUSED_KERNELS)),
        ),
        _rung("all-reduce", "each rank reads its share of the weights; two sums a layer", None),
        _rung("packed", "fewer and larger products, what surrounds them in few launches", _fused),
        _rung("sequence parallel", "adds and norms on a share of the tokens", _sequence),
        _rung("cuda graph", "one call of the host a step", _fused, refuses=_decodes, **GPU),
        _rung(
            "cuda graph, one-shot", "sums in one step: each rank reads what the others wrote", _fused, "one-shot",
            refuses=_among_ranks, **GPU,
        ),
        _rung(
            "cuda graph, push", "no barrier: each rank writes to the others and waits for their words", _fused, "push",
            kernels=PUSH_KERNELS, refuses=_among_ranks, **GPU,
        ),
        _rung(
            "cuda graph, sums in norms", "no launch for a sum: the norm behind it adds up", _in_norms, "push",
            kernels=(*PUSH_KERNELS, "sum_norm"), refuses=_few, **GPU,
        ),
        _rung(
            "cuda graph, sums by products", "products send as they compute; the norm is inside the next", _by_products,
            "push", kernels=(*PUSH_KERNELS, "sum_norm", "sum_linear"), refuses=_single, **GPU,
        ),
    ),
    sizes={
        "fast": (TensorParallelStep(context=128),),
        "small": (*(TensorParallelStep(2, b) for b in (1, 4, 16)), TensorParallelStep(2, 1, 512, 512)),
        "full": (
            *(_large(2, b) for b in (1, 8, 32, 64, 128)),
            *(_large(2, 1, queries) for queries in (512, 2048, 8192)),
        ),
        "four": _over(2, 4),
        "eight": _over(2, 4, 8),
    },
)  # fmt: skip


def efficiencies(records: Iterable[Record]) -> dict[str, float]:
    """T1 / (n Tn) of each timed rung beside 'one GPU', from records of one workload; empty without that one."""
    timed = {record.rung: record for record in records if record.time}
    if ONE_GPU not in timed:
        return {}
    alone = timed[ONE_GPU].time.median
    return {
        name: alone / (record.workload["ranks"] * record.time.median)
        for name, record in timed.items()
        if name != ONE_GPU
    }
