"""The ladder of a pool that is too small: how many may run when their answers will not fit together.

    recompute   as many as the blocks take now; who finds none is set back and read again later
    prefix      the same, and who comes back finds those of its blocks that nobody took

Admission counts the blocks of the prompt; the answer grows afterwards. max_num_seqs is the brake: few seats waste
memory; with many the last ones lose their places, and their tokens are computed twice (`read again`). The best number
lies between, and it moves with the lengths of answers, which nobody knows.
"""

from __future__ import annotations

from dataclasses import dataclass

from labllm.bench import axis
from labllm.serving.arrivals import lognormal
from labllm.serving.config import CHUNKED, PREFIX, EngineConfig
from labllm.serving.replay import Run
from labllm.serving.scheduling.felt import Figures, gap_figures, read_again
from labllm.serving.scheduling.virtual import fleet, virtual_ladder
from labllm.serving.traces import Trace, trace

BLOCK = 16


@dataclass(frozen=True)
class Crowd:
    """`requests` at once, prompts of about `prompt` and answers of about `answer` tokens, a pool of `cache` tokens."""

    max_num_seqs: int = axis(32, 4, 8, 16, 32, 64, 128, unit="seats", label="max_num_seqs")
    cache: int = axis(8192, 4096, 8192, 16384, 32768, unit="tokens", label="KV cache")
    prompt: int = axis(512, 32, 128, 512, unit="tokens", label="prompt, on average")
    answer: int = axis(256, 64, 128, 256, unit="tokens", label="answer, on average")
    requests: int = axis(128, 64, 128, 256, unit="requests", label="requests")
    fleet: str = fleet()


def crowd(w: Crowd, seed: int = 0) -> Trace:
    """Its trace: all at once, lengths with a long tail."""
    return trace(w.requests, lognormal(w.prompt, 0.5, 4 * w.prompt), lognormal(w.answer, 0.8, 4 * w.answer), seed=seed)


def _sized(w: Crowd, config: EngineConfig) -> EngineConfig:
    return config.but(max_num_seqs=w.max_num_seqs, max_num_batched_tokens=2048, kv_blocks=w.cache // BLOCK)


def figures(w: Crowd, run: Run) -> Figures:
    """Preemptions and tokens read again, also where there are none, and the longest gap."""
    again = {"preemptions": (float(run.metrics.preemptions), "requests"), "read again": (read_again(run), "%")}
    return gap_figures(run) | again


POOLS = virtual_ladder(
    name="preemption",
    title="More requests than the pool can hold",
    workload=Crowd,
    trace_of=crowd,
    rungs={
        "recompute": ("who is set back is read again", lambda w: _sized(w, CHUNKED)),
        "prefix": ("but for blocks that nobody took meanwhile", lambda w: _sized(w, PREFIX)),
    },
    sizes={
        "fast": tuple(Crowd(seats, cache=4096, prompt=128, answer=64, requests=64) for seats in (4, 64)),
        "small": tuple(Crowd(seats) for seats in (4, 8, 16, 32, 64)),
        "full": tuple(Crowd(s, cache) for cache in (8192, 32768) for s in (4, 8, 16, 32, 64)),
    },
    figures=figures,
)
