"""The ladder of allocators: how many sequences fit at once, how many slots stand empty, and what that does to a server.

A seeded trace waits in line for a cache of `slots` tokens and is replayed to its end (`labllm.cache.replay`). Time is
virtual: a step reads all weights and all cached tokens once at an H200's datasheet bandwidth, and computes what it
reads of prompts at its bf16 rate, for a model of Llama-3.1-8B's shape. So a batch twice as large is not twice as fast:
the cache must be read whatever the batch, and only the weights are shared.

Every allocator must bring every request to its end; the answer is the length that each ended with.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any, NamedTuple

from labllm.bench import Ladder, Rung, axis
from labllm.bench.compare import Verdict
from labllm.bench.virtual import VirtualClock
from labllm.cache import allocators, replay
from labllm.cache.allocators import Allocator, MaxLength, Paged, PowerOfTwo
from labllm.cache.kv_cache import kv_bytes
from labllm.cache.replay import Moment, follow, shares
from labllm.cache.traces import TRACES, Request
from labllm.devices import KNOWN
from labllm.roofline import Cost

DEMAND = 4  # tokens of all requests together, in caches: enough that most of a replay meets a full one
PARAMETERS = 7.5e9  # of Llama-3.1-8B's layers and head; a step does not read its embedding table
KV_BYTES = kv_bytes(num_layers=32, num_kv_heads=8, head_dim=128)
H200 = next(spec for spec in KNOWN if spec.name == "H200")


@dataclass(frozen=True)
class Line:
    """Requests of `average` tokens, at most `max_len`, that wait for a cache of `slots` tokens."""

    average: int = axis(256, 64, 128, 256, 512, unit="tokens", label="average length")
    trace: str = axis("lognormal", *TRACES, label="lengths")
    max_len: int = axis(2048, 1024, 2048, 4096, 8192, unit="tokens", label="longest allowed")
    slots: int = axis(16384, 8192, 16384, 65536, unit="tokens", label="cache")
    block_size: int = axis(16, 1, 8, 16, 32, 64, 128, 256, unit="tokens", label="block size")


class Task(NamedTuple):
    """A workload and its requests."""

    line: Line
    requests: list[Request]


class Replayed(NamedTuple):
    """Lengths that requests ended with, what was seen at each step, and virtual seconds."""

    ends: list[int]
    moments: list[Moment]
    seconds: float


@dataclass(frozen=True)
class AllServed:
    """Error: the share of requests that did not end with the length that they should have."""

    def __call__(self, out: Any, reference: Callable[[Any], Any], dtype: str, seed: int) -> Verdict:
        wanted: Sequence[int] = reference(None)
        wrong = sum(a != b for a, b in zip(out.ends, wanted, strict=True)) / len(wanted)
        return Verdict(wrong, 0.0, f"{wrong:.1%} of the requests did not end as they should" if wrong else "")


def step_seconds(moment: Moment) -> float:
    """Virtual time of a step: weights and cache read once, prompts computed."""
    read = 2 * PARAMETERS + KV_BYTES * moment.slots["tokens"]
    return read / H200.bandwidth + 2 * PARAMETERS * moment.read / (H200.peak("bfloat16") or 1)


def run(task: Task, allocator: Allocator, max_len: Callable[[Request], int]) -> Replayed:
    """Replay the whole trace."""
    moments = list(follow(task.requests, allocator, max_len))
    last = [0] * len(task.requests)
    for moment in moments:
        for owner, tokens in moment.tokens.items():
            last[owner] = tokens + 1
    return Replayed(last, moments, sum(map(step_seconds, moments)))


def _task(w: Line, device: str, seed: int) -> Task:
    return Task(w, TRACES[w.trace](DEMAND * w.slots // w.average, w.average, w.max_len, seed))


def _metrics(w: Line, out: Replayed, seconds: float | None) -> dict[str, tuple[float, str]]:
    parts, full = shares(out.moments), [m for m in out.moments if m.waiting]
    written = sum(m.running for m in out.moments)
    return {
        "waste": (1 - parts["tokens"], "%"),
        "admitted batch": (mean(m.running for m in full[len(full) // 2 :]), "sequences"),
        "throughput": (written / out.seconds, "tokens/s"),
        "read again": (out.moments[-1].recomputed / sum(out.ends), "%"),
    }


def _rung(name: str, about: str, make: Callable[[Line], Allocator], oracle: bool = False) -> Rung:
    def rung(task: Task) -> Replayed:
        return run(task, make(task.line), lambda r: r.total if oracle else task.line.max_len)

    return Rung(name, rung, about=about, sources=(run, make, allocators, replay))


ALLOCATORS = Ladder(
    name="allocators",
    title="Sequences in a full cache, by allocator",
    workload=Line,
    inputs=_task,
    cost=lambda w: Cost(),
    reference=lambda task, rows: [request.total for request in task.requests],
    rungs=(
        _rung("max length", "the longest allowed, in one piece", lambda w: MaxLength(w.slots)),
        _rung("power of two", "one piece that doubles: no room for what never comes", lambda w: PowerOfTwo(w.slots)),
        _rung("oracle", "the true length, in one piece: nobody knows it", lambda w: MaxLength(w.slots), oracle=True),
        _rung("paged", "blocks anywhere: no room for later, no holes", lambda w: Paged(w.slots, w.block_size)),
    ),
    sizes={
        "fast": tuple(Line(average, max_len=1024, slots=8192) for average in (128, 256)),
        "small": tuple(Line(average) for average in (64, 128, 256, 512)),
        "full": (
            *(Line(average, trace) for trace in TRACES for average in (64, 128, 256, 512)),
            *(Line(block_size=size) for size in (1, 8, 32, 64, 128, 256)),
            *(Line(max_len=longest) for longest in (1024, 4096, 8192)),
            Line(slots=65536),
        ),
    },
    metrics=_metrics,
    compare=AllServed(),
    clock=VirtualClock(),
)
