"""The generation ladder: pico writes tokens, recomputing everything or keeping keys and values.

An answer is a list of token ids, and ids of different arithmetic may differ where two logits nearly tie. So an answer
is judged by its own logits: in float64, without a cache, each emitted id must be within a tolerance of the best logit
of its position. That accepts a tie and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import torch

from labllm.bench import Ladder, RunClock, Rung, axis, torch_dtype
from labllm.bench.compare import Verdict
from labllm.models import generate
from labllm.models.count import pass_cost
from labllm.models.heldout import held_out
from labllm.models.llama import Llama
from labllm.models.pico import kept_pico, pico_tokenizer
from labllm.models.pico.shape import PICO
from labllm.roofline import Cost

GAPS = {"float32": 1e-3, "float16": 1e-1, "bfloat16": 5e-1}


@dataclass(frozen=True)
class Generation:
    """pico continues `batch` prompts of `prompt` tokens by `new_tokens` greedy tokens."""

    new_tokens: int = axis(32, 8, 16, 32, 64, 128, 256, 512, unit="tokens", label="new tokens")
    prompt: int = axis(64, 16, 64, 256, 1024, unit="tokens", label="prompt")
    batch: int = axis(1, 1, 4, 16, unit="sequences", label="batch")
    dtype: str = axis("float32", "float32", "float16", "bfloat16")


class Task(NamedTuple):
    """A model, prompts [B][T] of token ids, and how many new tokens to write."""

    model: Llama
    prompts: list[list[int]]
    new_tokens: int


@dataclass(frozen=True)
class Greedy:
    """Error: the most by which the best float64 logit of a position exceeds that of the id emitted there."""

    def __call__(self, out: Any, reference: Callable[[Any], Any], dtype: str, seed: int) -> Verdict:
        gap = float(reference(out))
        reason = "" if gap <= GAPS[dtype] else f"an emitted token is {gap:.2g} below the best logit of its position"
        return Verdict(gap, GAPS[dtype], reason)


@lru_cache(maxsize=1)
def _text() -> list[int]:
    return pico_tokenizer().encode(held_out().text).ids


def _task(w: Generation, device: str, seed: int) -> Task:
    text = _text()
    starts = torch.randint(0, len(text) - w.prompt, (w.batch,), generator=torch.Generator().manual_seed(seed)).tolist()
    return Task(kept_pico(device, torch_dtype(w)), [text[s : s + w.prompt] for s in starts], w.new_tokens)


def _gap(task: Task, out: list[list[int]]) -> float:
    """Largest float64 logit gap of the emitted ids, prompts and answers read in one dense pass."""
    ids = torch.tensor([p + o for p, o in zip(task.prompts, out, strict=True)], device=task.model.device)
    logits = kept_pico(str(task.model.device), torch.float64).forward_dense(ids[:, :-1])[:, -task.new_tokens :]
    emitted = ids[:, -task.new_tokens :, None]
    return (logits.max(-1).values - logits.gather(-1, emitted)[..., 0]).max().item()


def _passes(w: Generation, recompute: bool) -> Cost:
    """A pass for each new token: the first over the prompt, the others over one token, or again over everything."""
    total = Cost()
    for made in range(w.new_tokens):
        cached = 0 if recompute or made == 0 else w.prompt + made - 1
        total += pass_cost(PICO, cached, w.prompt + made - cached, w.batch, torch_dtype(w))
    return total


def _cached(task: Task) -> list[list[int]]:
    return generate.generate_cached(*task)


def _recompute(task: Task) -> list[list[int]]:
    return generate.generate_recompute(*task)


GENERATION = Ladder(
    name="generation",
    title="pico writes: recompute against cached",
    workload=Generation,
    inputs=_task,
    cost=lambda w: _passes(w, recompute=False),
    reference=_gap,
    rungs=(
        Rung(
            "recompute",
            _recompute,
            about="no cache: every step passes over all tokens again",
            moved=lambda w: _passes(w, recompute=True),
        ),
        Rung("cached", _cached, about="keys and values are kept: every token is passed once"),
    ),
    sizes={
        "fast": tuple(Generation(n) for n in (8, 16)),
        "small": tuple(Generation(n) for n in (8, 16, 32, 64, 128)),
        "full": (*(Generation(n) for n in (8, 32, 128, 512)), *(Generation(n, 1024) for n in (8, 128))),
    },
    compare=Greedy(),
    clock=RunClock(budget=1.0, most=5),
    metrics=lambda w, out, seconds: {"throughput": (w.batch * w.new_tokens / seconds, "tokens/s")},
)
