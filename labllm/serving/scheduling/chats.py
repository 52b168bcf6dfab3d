"""The ladder of prefix caching: chats whose every turn repeats all that was said before.

    read again   each turn computes system prompt and history anew
    prefix       blocks of a known beginning are taken from the cache, and only the rest is computed

With h tokens of history and q of question a turn costs q / (h + q) of the reading. The pool's free blocks are the
cache: what a history left there is found again unless its blocks were given away meanwhile, those unused for longest
first.
It loses where nothing is shared, and where the pool is too small for all who are thinking about their next question.
"""

from __future__ import annotations

from dataclasses import dataclass

from labllm.bench import axis
from labllm.serving.arrivals import lognormal
from labllm.serving.config import CHUNKED, PREFIX, EngineConfig
from labllm.serving.replay import Run
from labllm.serving.scheduling.felt import Figures
from labllm.serving.scheduling.virtual import fleet, virtual_ladder
from labllm.serving.traces import Trace, chats

SEATS, BLOCK = 32, 16


@dataclass(frozen=True)
class Chats:
    """`chats` conversations of `turns` turns behind one system prompt; questions and answers of about `turn` tokens."""

    turns: int = axis(6, 1, 2, 4, 6, 8, unit="turns", label="turns of a chat")
    system: int = axis(2048, 16, 128, 512, 2048, unit="tokens", label="system prompt")
    turn: int = axis(128, 32, 64, 128, unit="tokens", label="question, on average")
    cache: int = axis(65536, 8192, 16384, 32768, 65536, 262144, unit="tokens", label="KV cache")
    rate: int = axis(8, 1, 2, 4, 8, 16, unit="chats/s", label="new chats")
    chats: int = axis(32, 16, 32, 64, unit="chats", label="chats")
    fleet: str = fleet()


def conversations(w: Chats, seed: int = 0) -> Trace:
    """Its trace; a reader thinks for 5 seconds between two turns, on average."""
    return chats(w.chats, w.turns, w.rate, w.system, lognormal(w.turn, 0.8, 4 * w.turn), seed=seed)


def _sized(w: Chats, config: EngineConfig) -> EngineConfig:
    return config.but(max_num_seqs=SEATS, max_num_batched_tokens=2048, kv_blocks=w.cache // BLOCK, block_size=BLOCK)


def figures(w: Chats, run: Run) -> Figures:
    """The share of prompt tokens that came out of the cache, also where it is none."""
    return {"prefix hits": (run.metrics.prefix_hits, "%")}


CHATS = virtual_ladder(
    name="prefix-caching",
    title="Chats that repeat what was said",
    workload=Chats,
    trace_of=conversations,
    rungs={
        "read again": ("every turn computes its whole history", lambda w: _sized(w, CHUNKED)),
        "prefix": ("what is in the cache is not computed", lambda w: _sized(w, PREFIX)),
    },
    sizes={
        "fast": tuple(Chats(turns, 512, 32, chats=16) for turns in (1, 4)),
        "small": tuple(Chats(turns) for turns in (1, 2, 4, 8)),
        "full": (
            *(Chats(turns) for turns in (1, 2, 4, 6, 8)),
            *(Chats(cache=tokens) for tokens in (8192, 16384)),
        ),
    },
    figures=figures,
)
