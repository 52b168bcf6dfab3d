"""The serving ladder at real size: a model of 8 B parameters with random weights on this GPU, batched in four ways.

Speed needs no trained weights, and random ones have no text to compare: an answer is judged by its length alone (the
batching ladder judges the same engine's ids on pico). Three cases say most: one request (weights are read for one
token), 32 equal ones, and 128 of mixed length.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import torch

from labllm.bench import Ladder, RunClock, Rung, axis, torch_dtype
from labllm.models.count import kv_bytes_per_token, parameters
from labllm.models.llama import Llama
from labllm.models.load import from_config
from labllm.models.operations import FUSED
from labllm.models.shapes import SHAPES
from labllm.roofline import Cost
from labllm.serving import peers, replay, rungs
from labllm.serving.arrivals import fixed, uniform
from labllm.serving.config import RUNGS
from labllm.serving.ladder import ABOUT
from labllm.serving.rungs import Served, Task, gang_cost, least_cost, named, ready, serve
from labllm.serving.traces import Trace, drawn, random_ids, trace


@dataclass(frozen=True)
class Load:
    """`requests` at once, prompts of `shortest` to `longest` tokens, `answer` tokens each."""

    requests: int = axis(32, 1, 8, 32, 128, unit="requests", label="requests")
    shortest: int = axis(512, 64, 512, unit="tokens", label="shortest prompt")
    longest: int = axis(512, 512, 1024, unit="tokens", label="longest prompt")
    answer: int = axis(64, 64, 128, 256, unit="tokens", label="answer")
    max_num_seqs: int = axis(128, 16, 32, 64, 128, 256, unit="seats", label="max_num_seqs")
    max_num_batched_tokens: int = axis(8192, 2048, 4096, 8192, 16384, unit="tokens", label="max_num_batched_tokens")
    model: str = axis("Llama-3.1-8B", "Llama-3.2-1B", "Llama-3.1-8B", "Qwen3-8B")
    dtype: str = axis("bfloat16", "float16", "bfloat16")


def load_trace(w: Load, seed: int = 0) -> Trace:
    """The requests of a workload."""
    return trace(w.requests, uniform(w.shortest, w.longest), fixed(w.answer), seed=seed)


def seats(w: Load) -> int:
    """max_num_seqs, as far as there are requests."""
    return min(w.max_num_seqs, w.requests)


@lru_cache(maxsize=1)
def kept_model(model: str, device: str, dtype: torch.dtype) -> Llama:
    """Random weights, made once for all rungs."""
    return from_config(SHAPES[model], device, dtype, operations=FUSED)


def _task(w: Load, device: str, seed: int) -> Task:
    model = kept_model(w.model, device, torch_dtype(w))
    requests = load_trace(w, seed)
    source = drawn(requests, random_ids(model.config.vocab_size))
    return Task(model, requests, source, seats(w), w.max_num_batched_tokens)


def _reference(task: Task, out: Any) -> tuple[list[int], float]:
    return [r.max_tokens for r in task.trace], 0.0


def _peer(task: Task, way: str) -> list[list[int]]:
    model = peers.transformers_model(task.model.config, str(task.model.device), task.model.dtype)
    if way == "continuous":
        return peers.continuous(model, task.trace, task.source)
    return peers.generate(model, task.trace, task.source, task.max_num_seqs, "static" if way == "static" else None)


def _weights(w: Load) -> float:
    return parameters(SHAPES[w.model]).total * torch_dtype(w).itemsize


def _held(w: Load) -> float:
    return w.requests * (w.longest + w.answer) * kv_bytes_per_token(SHAPES[w.model], torch_dtype(w))


def _rung(name: str) -> Rung:
    cost = partial(_costs, static=name == "static")
    return Rung(
        name,
        serve,
        partial(ready, config=RUNGS[name]),
        about=ABOUT[name],
        needs=("cuda", "bf16"),
        moved=cost,
        memory=_held,
        sources=(replay, rungs),
    )


def _costs(w: Load, static: bool = False) -> Cost:
    cost = gang_cost if static else least_cost
    return cost(SHAPES[w.model], load_trace(w), seats(w), torch_dtype(w))


def _peer_rung(name: str, way: str, about: str) -> Rung:
    return Rung(
        name,
        partial(_peer, way=way),
        about=about,
        needs=("cuda", "bf16"),
        moved=partial(_costs, static=way != "continuous"),
        memory=lambda w: _weights(w) + 2 * _held(w),
        peer=True,
        sources=(peers,),
    )


SERVING = Ladder(
    name="serving",
    title="A model of real size serves a trace",
    workload=Load,
    inputs=_task,
    input_bytes=_weights,
    cost=_costs,
    reference=_reference,
    rungs=(
        *(_rung(name) for name in RUNGS),
        _peer_rung("transformers generate", "generate", "padded gangs; every step is launched from Python"),
        _peer_rung("transformers generate, compiled", "static", "padded gangs over a static cache, compiled"),
        _peer_rung("transformers continuous", "continuous", "its own continuous batching"),
    ),
    sizes={
        "fast": (Load(1, answer=64, model="Llama-3.2-1B"), Load(32, answer=64, model="Llama-3.2-1B")),
        "small": (Load(1), Load(32)),
        "full": (Load(1), Load(32), Load(128, 64, 1024, 128)),
    },
    compare=Served(lambda dtype: 0.0),
    clock=RunClock(budget=0.25, most=3),
    metrics=lambda w, out, seconds: named(out, seconds),
)
