"""The ladder of chunked prefill: chats and long documents share a GPU, and the token budget of a step is the knob.

    whole prompts   a document is read in one step, and every answer waits for it
    chunked         it is read in pieces beside the decodes, max_num_batched_tokens a step at most

A step of T tokens takes at least max(weights / bandwidth, 2 P T / FLOP/s), P parameters. Below the ridge a piece costs
as much as a decode step whatever its size, so small pieces make reading slow; above it a step grows with T, and so does
the gap that everyone else feels. Agrawal et al., "Sarathi-Serve", OSDI 2024.
"""

from __future__ import annotations

from dataclasses import dataclass

from labllm.bench import axis
from labllm.serving.arrivals import bimodal, fixed, poisson
from labllm.serving.config import CHUNKED, CONTINUOUS, EngineConfig
from labllm.serving.replay import Run
from labllm.serving.scheduling.felt import Figures, gap_figures, of
from labllm.serving.scheduling.virtual import LARGE, LAUNCHED, OLDER, SMALL, fleet, virtual_ladder
from labllm.serving.traces import Trace, trace

CHAT, DOCUMENTS = 256, 0.125  # tokens of a chat's prompt, and the share of requests that are documents
BUDGETS = (64, 128, 256, 512, 1024, 2048, 4096, 8192)
FIRST, GAP = 1.0, 0.1  # seconds promised: to the first token, and between two tokens at most


@dataclass(frozen=True)
class Mixture:
    """`requests`: one in eight brings a document of `document` tokens, the others chat; answers of `answer` tokens."""

    max_num_batched_tokens: int = axis(1024, *BUDGETS, unit="tokens", label="max_num_batched_tokens")
    rate: int = axis(16, 2, 4, 8, 16, 20, 28, 34, unit="requests/s", label="arrivals")
    document: int = axis(8192, 1024, 2048, 8192, 16384, unit="tokens", label="document")
    max_num_seqs: int = axis(64, 4, 8, 16, 32, 64, unit="seats", label="max_num_seqs")
    answer: int = axis(64, 32, 64, 128, unit="tokens", label="answer")
    requests: int = axis(96, 48, 96, 192, unit="requests", label="requests")
    fleet: str = fleet()


def mixture(w: Mixture, seed: int = 0) -> Trace:
    """Its trace, Poisson arrivals."""
    return trace(w.requests, bimodal(CHAT, w.document, DOCUMENTS), fixed(w.answer), poisson(w.rate), seed)


def _sized(w: Mixture, config: EngineConfig) -> EngineConfig:
    return config.but(max_num_seqs=w.max_num_seqs, max_num_batched_tokens=w.max_num_batched_tokens)


def figures(w: Mixture, run: Run) -> Figures:
    """TTFT of the two kinds, the longest gap, and the requests a second to which both promises were kept."""
    chats, documents = (of(run, "ttft", 0.5, lambda r, n=n: r.num_prompt == n) for n in (CHAT, w.document))
    kept = sum(r.ttft <= FIRST and max(r.itl, default=0.0) <= GAP for r in run.metrics.requests)
    return gap_figures(run) | {
        "TTFT of chats": (chats, "s"),
        "TTFT of documents": (documents, "s"),
        "goodput": (kept / run.seconds, "requests/s"),
    }


CHUNKS = virtual_ladder(
    name="chunked-prefill",
    title="Chats beside long documents",
    workload=Mixture,
    trace_of=mixture,
    rungs={
        "whole prompts": ("a document is read in one step", lambda w: _sized(w, CONTINUOUS)),
        "chunked": ("in pieces, beside the decodes", lambda w: _sized(w, CHUNKED)),
    },
    sizes={
        "fast": tuple(Mixture(tokens, requests=48, answer=32) for tokens in (256, 2048)),
        "small": tuple(Mixture(tokens) for tokens in BUDGETS),
        "full": tuple(
            Mixture(tokens, rate, fleet=name)
            for name, rate in ((SMALL, 16), (SMALL, 20), (LARGE, 4), (OLDER, 4), (LAUNCHED, 4))
            for tokens in BUDGETS
        ),
    },
    figures=figures,
)
