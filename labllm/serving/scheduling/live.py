"""The ladder of long prompts on a real engine: some answers are being written when documents arrive.

    whole prompts   each document is one step, and all answers stand still in it
    chunked         pieces of at most max_num_batched_tokens, decodes included

On a CPU the model is pico, on a GPU one of real size with random weights; time is the wall's. Answers are judged by
their lengths alone (the batching ladder judges ids). `chunks` asks the same question on a virtual clock.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch

from labllm.bench import Ladder, RunClock, Rung, axis, torch_dtype
from labllm.hardware import default_device
from labllm.models.count import parameters
from labllm.models.pico.shape import PICO
from labllm.models.shapes import SHAPES
from labllm.serving import ladder, replay, rungs, serving_ladder
from labllm.serving.config import RUNGS
from labllm.serving.replay import Run
from labllm.serving.rungs import Served, Task, least_cost, named, ready, serve
from labllm.serving.scheduling.felt import gap_figures, of
from labllm.serving.traces import Trace, TracedRequest, random_ids
from labllm.ui.sizes import fast

CHAT, DOCUMENT_ANSWER = 32, 8  # tokens of a chat's prompt, and of what is written about a document


@dataclass(frozen=True)
class Visit:
    """`chats` answers of `answer` tokens run; `documents` of `document` tokens come, one every `every` milliseconds."""

    max_num_batched_tokens: int = axis(
        256, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, unit="tokens", label="max_num_batched_tokens"
    )
    document: int = axis(8192, 256, 1024, 4096, 8192, unit="tokens", label="document")
    documents: int = axis(4, 1, 2, 4, unit="documents", label="documents")
    every: int = axis(250, 50, 100, 250, unit="ms", label="a document every")
    chats: int = axis(16, 4, 6, 8, 16, unit="chats", label="chats")
    answer: int = axis(256, 16, 32, 64, 128, 256, unit="tokens", label="answer of a chat")
    model: str = axis("Llama-3.1-8B", "pico", "Llama-3.2-1B", "Llama-3.1-8B")
    dtype: str = axis("bfloat16", "float32", "bfloat16")


def visit(w: Visit) -> Trace:
    """Its trace."""
    talk = [TracedRequest(prompt=((f"chat {i}", CHAT),), max_tokens=w.answer) for i in range(w.chats)]
    come = [
        TracedRequest(
            arrival=(i + 1) * w.every / 1e3, prompt=((f"document {i}", w.document),), max_tokens=DOCUMENT_ANSWER
        )
        for i in range(w.documents)
    ]
    return [*talk, *come]


def here(device: str | None = None) -> Visit:
    """What a notebook asks of this machine: pico on a CPU, a model of 1 B parameters on a GPU (under 4 GB)."""
    if torch.device(device or default_device()).type == "cuda":
        return Visit(1024, 4096, 2, 50, 8, 128, "Llama-3.2-1B")
    return VISITS.sizes["fast" if fast() else "small"][0]


def serve_once(w: Visit, rung: str, device: str | None = None) -> Run:
    """One run of a rung, after a short one that warms up. Raises KeyError for an unknown rung."""
    device = device or default_device()
    small = replace(w, document=min(w.document, 256), documents=1, every=50, answer=16)
    for workload in (small, w):
        found = VISITS[rung].run(VISITS[rung].prepare(VISITS.inputs(workload, device, 0)))
    return found


def figures(w: Visit, out: Any, seconds: float | None) -> dict[str, tuple[float, str]]:
    """The usual ones, the longest gap of the chats, and when documents were read."""
    document = of(out, "ttft", 0.5, lambda r: r.num_prompt == w.document)
    return named(out, seconds) | gap_figures(out) | {"TTFT of documents": (document, "s")}


def _task(w: Visit, device: str, seed: int) -> Task:
    dtype = torch_dtype(w)
    about = device, dtype
    model = ladder.kept_model(*about) if w.model == "pico" else serving_ladder.kept_model(w.model, *about)
    return Task(model, visit(w), random_ids(model.config.vocab_size), w.chats + w.documents, w.max_num_batched_tokens)


def _config(w: Visit) -> Any:
    return PICO if w.model == "pico" else SHAPES[w.model]


def _refuses(w: Visit) -> str | None:
    if w.model == "pico" and w.document + DOCUMENT_ANSWER > PICO.max_position_embeddings:
        return f"pico knows {PICO.max_position_embeddings} positions: choose a shorter document"
    if w.model != "pico" and not torch.cuda.is_available():
        return f"{w.model} needs a GPU here: choose pico"
    return None


def _rung(name: str, rung: str, about: str) -> Rung:
    return Rung(name, serve, partial(ready, config=RUNGS[rung]), about=about, refuses=_refuses, sources=(replay, rungs))


VISITS = Ladder(
    name="long-prompts",
    title="Documents arrive while answers are written",
    workload=Visit,
    inputs=_task,
    input_bytes=lambda w: parameters(_config(w)).total * torch_dtype(w).itemsize,
    cost=lambda w: least_cost(_config(w), visit(w), w.chats + w.documents, torch_dtype(w)),
    reference=lambda task, out: ([r.max_tokens for r in task.trace], 0.0),
    rungs=(
        _rung("whole prompts", "continuous", "a document is read in one step"),
        _rung("chunked", "chunked", "in pieces, beside the decodes"),
    ),
    sizes={
        "fast": (Visit(64, 256, 1, 50, 4, 32, "pico", "float32"),),
        "small": tuple(Visit(tokens, 1024, 2, 50, 6, 64, "pico", "float32") for tokens in (128, 512)),
        "full": tuple(Visit(tokens) for tokens in (256, 1024, 4096)),
    },
    compare=Served(lambda dtype: 0.0),
    clock=RunClock(budget=0.5, most=1),
    metrics=figures,
)
