"""What the batching ladders share: a task, engines made for it, and how answers are judged.

An engine is made before the clock starts and kept for the next case of the same kind: allocating its cache and
capturing its graphs is no part of serving. Before each run it forgets what its prefix cache knows, so every run meets
the same trace with the same engine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import torch

from labllm.bench.compare import Verdict
from labllm.models.config import ModelConfig
from labllm.models.count import flops_per_token, kv_bytes_per_token, parameters
from labllm.models.llama import Llama
from labllm.models.pico.shape import PICO
from labllm.roofline import Cost
from labllm.serving.config import EngineConfig
from labllm.serving.engine import Engine
from labllm.serving.executors.real_threads import product_with, sharing_pays
from labllm.serving.llm import real_engine
from labllm.serving.replay import Run, replay, requests_of
from labllm.serving.traces import Source, Trace, TracedRequest


@dataclass(frozen=True, eq=False)
class Task:
    """A trace for a model: `source` makes prompts of it; configs are given the sizes and max_model_len."""

    model: Llama
    trace: Trace
    source: Source
    max_num_seqs: int
    max_num_batched_tokens: int | None = None

    @property
    def max_model_len(self) -> int:
        """Tokens of the longest request."""
        return longest(self.trace)


@dataclass(frozen=True, eq=False)
class Ready:
    """An engine that waits for its task."""

    task: Task
    engine: Engine


def longest(trace: Sequence[TracedRequest]) -> int:
    """Tokens of the longest request, prompt and answer."""
    return max(r.num_prompt + r.max_tokens for r in trace)


def ready(task: Task, config: EngineConfig) -> Ready:
    """The engine of `config` for a task."""
    return Ready(task, _engine(task.model, sized(config, task).for_model(task.model.config)))


def sized(config: EngineConfig, task: Task) -> EngineConfig:
    """`config` with the task's sizes; where prompts may not be cut, a step takes the longest beside all decodes."""
    tokens = task.max_num_batched_tokens
    if tokens is not None and not config.enable_chunked_prefill:
        tokens = max(tokens, task.max_model_len + task.max_num_seqs)
    return config.but(max_num_seqs=task.max_num_seqs, max_model_len=task.max_model_len, max_num_batched_tokens=tokens)


@lru_cache(maxsize=1)
def _engine(model: Llama, config: EngineConfig) -> Engine:
    return real_engine(model, config, log=[])


def serve(state: Ready) -> Run:
    """Replay the task's trace on its engine, from an empty prefix cache. Raises RuntimeError where a step failed."""
    engine, task = state.engine, state.task
    engine.scheduler.forget()
    engine.log = []
    requests = requests_of(task.trace, task.source)
    with even_threads(task.model.device):
        replay(engine, requests)
    if failed := next((r for r in requests if r.error), None):
        raise RuntimeError(f"request {failed.id} failed: {failed.error}")
    return Run(requests, engine.log, task.max_num_seqs, engine.pool.num_blocks)


@contextmanager
def even_threads(device: torch.device) -> Iterator[None]:
    """On a CPU as many threads for every rung of this process, ours and peers: all of them where sharing pays here."""
    before = torch.get_num_threads()
    if device.type == "cpu" and before > 1:
        torch.set_num_threads(_threads(before))
    try:
        yield
    finally:
        torch.set_num_threads(before)


@cache
def _threads(most: int) -> int:
    """All or one, by what three races of a product as large as pico's head say."""
    product = product_with(torch.ones(PICO.vocab_size, PICO.hidden_size))
    return most if sum(sharing_pays(product, most) for _ in range(3)) >= 2 else 1


def ids_of(out: Any) -> list[list[int]]:
    """The answers of a run of ours, or of a peer."""
    return out.ids if isinstance(out, Run) else out


@dataclass(frozen=True)
class Served:
    """Judges answers: each must be as long as its request wanted, with an error that the tolerance allows.

    reference(out) -> (lengths wanted, error of what was written).
    """

    tolerance: Callable[[str], float]

    def __call__(self, out: Any, reference: Callable[[Any], Any], dtype: str, seed: int) -> Verdict:
        lengths, error = reference(out)
        tolerance = self.tolerance(dtype)
        if [len(ids) for ids in ids_of(out)] != lengths:
            return Verdict(float("inf"), tolerance, "an answer is missing or not as long as its request wanted")
        reason = "" if error <= tolerance else f"an emitted token is {error:.2g} below the best logit of its position"
        return Verdict(error, tolerance, reason)


def named(out: Any, seconds: float | None) -> dict[str, tuple[float, str]]:
    """The figures of a record: throughput as timed, and the other metrics of a run of ours."""
    found = out.metrics.named() if isinstance(out, Run) else {}
    if seconds:
        found["throughput"] = (sum(map(len, ids_of(out))) / seconds, "tokens/s")
    return found


def least_cost(config: ModelConfig, trace: Sequence[TracedRequest], max_num_seqs: int, dtype: torch.dtype) -> Cost:
    """What the trace must cost: the FLOPs of its tokens, and the fewest passes over the weights, all seats taken."""
    passes = max(max(r.max_tokens for r in trace), sum(r.max_tokens for r in trace) / max_num_seqs)
    return _cost(config, [(r.num_prompt, r.max_tokens) for r in trace], passes, dtype)


def gang_cost(config: ModelConfig, trace: Sequence[TracedRequest], max_num_seqs: int, dtype: torch.dtype) -> Cost:
    """What it costs in gangs of max_num_seqs, in the trace's order: every row goes on to the gang's longest answer."""
    gangs = [trace[start : start + max_num_seqs] for start in range(0, len(trace), max_num_seqs)]
    longest = [max(r.max_tokens for r in gang) for gang in gangs]
    rows = [(r.num_prompt, most) for gang, most in zip(gangs, longest, strict=True) for r in gang]
    return _cost(config, rows, sum(longest), dtype)


def _cost(config: ModelConfig, rows: Sequence[tuple[int, int]], passes: float, dtype: torch.dtype) -> Cost:
    """Of rows (tokens of the prompt, tokens written) in so many passes over the weights."""
    flops = keys = 0.0
    per_pair = flops_per_token(config, 1) - flops_per_token(config)
    for prompt, written in rows:
        total = prompt + written - 1
        flops += total * flops_per_token(config) + per_pair * total * (total + 1) / 2
        keys += written * (prompt + written / 2)
    read = passes * parameters(config).total * dtype.itemsize
    return Cost(flops, read + keys * kv_bytes_per_token(config, dtype))
