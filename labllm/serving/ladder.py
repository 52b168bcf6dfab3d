"""The batching ladder: one trace, one model, one cache, and four ways to fill the seats.

    static      a gang is served to its longest answer
    continuous  a seat that falls free is taken at the next step
    chunked     prompts are read in pieces beside the decodes
    prefix      a beginning that was read before is not read again

A quarter of all answers is long: `ratio` says how many times longer than the others, at the same mean, so that the
useful work stays what it was. With ratio 1 and no arrivals to wait for, static batching loses nothing. Answers are ids;
each must be the best of its position by the model's float64 logits, up to a tie.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import torch

from labllm.bench import Ladder, RunClock, Rung, axis, torch_dtype
from labllm.models.heldout import held_out
from labllm.models.ladder import GAPS
from labllm.models.operations import FUSED
from labllm.models.pico import WEIGHTS, kept_pico, pico, pico_tokenizer
from labllm.models.pico.shape import PICO
from labllm.roofline import Cost
from labllm.serving import peers, replay, rungs
from labllm.serving.arrivals import ARRIVALS, bimodal, fixed
from labllm.serving.config import RUNGS
from labllm.serving.replay import Run
from labllm.serving.rungs import Served, Task, even_threads, gang_cost, ids_of, least_cost, named, ready, serve
from labllm.serving.traces import Trace, text_ids, trace

LONG = 0.25  # the share of long answers
CHECKED = 6  # answers whose every token is checked, drawn by the seed
ABOUT = {
    "static": "a gang is served to its longest answer",
    "continuous": "a free seat is taken at the next step",
    "chunked": "prompts are read in pieces, beside the decodes",
    "prefix": "a known beginning is not read again",
}


@dataclass(frozen=True)
class Traffic:
    """`requests` of `prompt` tokens, the first `shared` of them alike; a quarter of the answers `ratio` times as long.

    answer is the mean length: 76 gives 16 and 256 tokens at ratio 16. The rate means nothing where all come at once.
    """

    ratio: int = axis(16, 1, 2, 4, 8, 16, 32, unit="x", label="longest over shortest answer")
    max_num_seqs: int = axis(16, 1, 2, 4, 8, 16, 32, 64, unit="seats", label="max_num_seqs")
    requests: int = axis(64, 8, 16, 32, 64, 128, 256, unit="requests", label="requests")
    arrivals: str = axis("at once", *ARRIVALS, label="arrivals")
    rate: int = axis(8, 1, 2, 4, 8, 16, 32, 64, unit="requests/s", label="rate")
    answer: int = axis(76, 19, 38, 76, 152, unit="tokens", label="mean answer")
    prompt: int = axis(32, 16, 32, 128, 512, unit="tokens", label="prompt")
    shared: int = axis(0, 0, 16, 96, 480, unit="tokens", label="shared beginning")
    dtype: str = axis("float32", "float32", "float16", "bfloat16")


def lengths(mean: int, ratio: int) -> tuple[int, int]:
    """(short, long) answers with about this mean where a quarter of them is long."""
    short = max(1, round(mean / (1 - LONG + LONG * ratio)))
    return short, short * ratio


def traffic(w: Traffic, seed: int = 0) -> Trace:
    """The trace of a workload. Raises ValueError where the shared beginning leaves a prompt nothing of its own."""
    if w.shared >= w.prompt:
        raise ValueError(f"A prompt of {w.prompt} tokens cannot begin with {w.shared} shared ones and go on.")
    arrivals = ARRIVALS[w.arrivals](w.rate)
    made = trace(w.requests, fixed(w.prompt - w.shared), bimodal(*lengths(w.answer, w.ratio), LONG), arrivals, seed)
    if not w.shared:
        return made
    return [r.model_copy(update={"prompt": (("shared", w.shared), *r.prompt)}) for r in made]


@lru_cache(maxsize=1)
def _text() -> tuple[int, ...]:
    return tuple(pico_tokenizer().encode(held_out().text).ids)


@lru_cache(maxsize=2)
def kept_model(device: str, dtype: torch.dtype) -> Any:
    """pico with packed layers, loaded once for all rungs."""
    return pico(device, dtype, FUSED)


def _task(w: Traffic, device: str, seed: int) -> Task:
    return Task(kept_model(device, torch_dtype(w)), traffic(w, seed), text_ids(_text()), w.max_num_seqs)


def played(w: Traffic, rung: str, device: str, seed: int = 0) -> Run:
    """One run of a rung of ours, with its engine's log: for a look, where `bench.measure` is for figures to keep."""
    return serve(ready(_task(w, device, seed), RUNGS[rung]))


@torch.inference_mode()
def _judged(task: Task, out: Any) -> tuple[list[int], float]:
    """Lengths wanted, and the most by which a float64 logit exceeds that of the id emitted, in a few whole answers."""
    wanted, answers, device = [r.max_tokens for r in task.trace], ids_of(out), task.model.device
    generator, gap = torch.Generator().manual_seed(len(answers)), 0.0
    model = kept_pico(str(device), torch.float64)
    if [len(ids) for ids in answers] != wanted:
        return wanted, gap
    for number in torch.randperm(len(answers), generator=generator)[:CHECKED].tolist():
        prompt, ids = task.trace[number].prompt_ids(task.source), answers[number]
        both = torch.tensor([prompt + ids], device=device)
        logits = model.forward_dense(both[:, :-1])[0, len(prompt) - 1 :]
        gap = max(gap, float((logits.max(-1).values - logits.gather(-1, both[0, len(prompt) :, None])[:, 0]).max()))
    return wanted, gap


def _peer(task: Task, way: str) -> list[list[int]]:
    model = peers.transformers_model(WEIGHTS, str(task.model.device), task.model.dtype)
    with even_threads(task.model.device):
        if way == "generate":
            return peers.generate(model, task.trace, task.source, task.max_num_seqs)
        return peers.continuous(model, task.trace, task.source)


def _no_arrivals(w: Traffic) -> str | None:
    return "it has no line: all requests must be there at once" if w.arrivals != "at once" else None


def _rung(name: str) -> Rung:
    moved = _gangs if name == "static" else None
    return Rung(
        name, serve, partial(ready, config=RUNGS[name]), about=ABOUT[name], moved=moved, sources=(replay, rungs)
    )


def _gangs(w: Traffic) -> Cost:
    return gang_cost(PICO, traffic(w), w.max_num_seqs, torch_dtype(w))


BATCHING = Ladder(
    name="batching",
    title="pico serves a trace, batched in four ways",
    workload=Traffic,
    inputs=_task,
    cost=lambda w: least_cost(PICO, traffic(w), w.max_num_seqs, torch_dtype(w)),
    reference=_judged,
    rungs=(
        *(_rung(name) for name in RUNGS),
        Rung(
            "transformers generate",
            partial(_peer, way="generate"),
            about="padded gangs, each to its longest answer",
            refuses=_no_arrivals,
            moved=_gangs,
            peer=True,
            sources=(peers,),
        ),
        Rung(
            "transformers continuous",
            partial(_peer, way="continuous"),
            about="its own continuous batching",
            refuses=_no_arrivals,
            peer=True,
            sources=(peers,),
        ),
    ),
    sizes={
        "fast": tuple(Traffic(ratio, 4, 8, answer=19) for ratio in (1, 4)),
        "small": tuple(Traffic(ratio, 8, 32, answer=19) for ratio in (1, 2, 4, 8, 16, 32)),
        "bars": (Traffic(16), Traffic(1, 32, 32)),
        "full": tuple(Traffic(ratio) for ratio in (1, 2, 4, 8, 16, 32)),
    },
    compare=Served(GAPS.__getitem__),
    clock=RunClock(budget=0.25, most=3),
    metrics=lambda w, out, seconds: named(out, seconds),
)
