"""How well a model predicts a text: nats a token, bits a byte, top-1 accuracy, and agreement with another model.

nats = mean of -log p(next token); bits a byte = total nats / ln 2 / bytes of the text, which compares models of
different tokenisers where nats a token cannot. Texts longer than the context are read in overlapping windows: every
token but a document's first is scored once, with at least context - stride tokens before it wherever the document has
them. Cost: context / stride forward passes over the text. It loses as a measure of usefulness: compare models with
it, not minds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor
from tqdm.auto import tqdm

from labllm.cache.step import Step
from labllm.models.llama import Llama

Documents = Sequence[Sequence[int]]


@dataclass(frozen=True)
class Quality:
    """Figures of one model on one text; bits_per_byte is None where the number of bytes was not given."""

    nats: float
    top1: float
    num_tokens: int
    bits_per_byte: float | None = None


@dataclass(frozen=True)
class Window:
    """ids [n] of which the predictions from index `first` on are scored against targets [n - first]."""

    ids: Sequence[int]
    first: int
    targets: Sequence[int]


def windows(documents: Documents, context: int, stride: int) -> Iterator[Window]:
    """Cut documents into windows of at most `context` ids that start `stride` apart and score every target once."""
    for ids in documents:
        scored = 0
        for start in range(0, len(ids) - 1, stride):
            end = min(start + context, len(ids) - 1)
            yield Window(ids[start:end], scored - start, ids[scored + 1 : end + 1])
            scored = end
            if end == len(ids) - 1:
                break


def evaluate(
    model: Llama,
    documents: Documents,
    num_bytes: int | None = None,
    context: int | None = None,
    stride: int | None = None,
    progress: bool = True,
) -> Quality:
    """Score token ids with `model`; context defaults to its positions (at most 2048), stride to half of that.

    Raises ValueError for texts without a token to score, ids outside the vocabulary, a context that does not fit, or a
    number of bytes that is not positive.
    """
    if num_bytes is not None and num_bytes < 1:
        raise ValueError(f"A text has at least one byte; got num_bytes = {num_bytes} (None leaves bits a byte out).")
    nats = hits = count = 0.0
    for ids, step, rows, targets in batches(model, documents, context, stride, progress):
        logits = logits_of(model, ids, step, rows).float()
        nats += F.cross_entropy(logits, targets, reduction="sum").item()
        hits += (logits.argmax(dim=-1) == targets).sum().item()
        count += len(targets)
    bits = None if num_bytes is None else nats / math.log(2) / num_bytes
    return Quality(nats / count, hits / count, int(count), bits)


def agreement(
    model: Llama,
    other: Llama,
    documents: Documents,
    context: int | None = None,
    stride: int | None = None,
    progress: bool = True,
) -> float:
    """Share of positions at which both models (of one vocabulary and device) rank the same token first.

    Raises ValueError as `evaluate`.
    """
    same = count = 0
    for ids, step, rows, targets in batches(model, documents, context, stride, progress):
        same += (
            (logits_of(model, ids, step, rows).argmax(-1) == logits_of(other, ids, step, rows).argmax(-1)).sum().item()
        )
        count += len(targets)
    return same / count


@torch.inference_mode()
def logits_of(model: Llama, ids: Tensor, step: Step, rows: Tensor) -> Tensor:
    """Logits [N, V] of the scored rows [N] of a batch ids [T]."""
    return model.logits(model.hidden(ids, step)[rows])


def batches(
    model: Llama, documents: Documents, context: int | None, stride: int | None, progress: bool
) -> Iterator[tuple[Tensor, Step, Tensor, Tensor]]:
    """One packed batch after another: ids [T], step, scored rows [N], their targets [N]."""
    limit = model.config.max_position_embeddings
    context = min(limit, 2048) if context is None else context
    stride = max(1, context // 2) if stride is None else stride
    if not 1 <= stride <= context <= limit:
        raise ValueError(f"Evaluation needs 1 <= stride <= context <= {limit} positions; got {stride} and {context}.")
    total = sum(max(0, len(ids) - 1) for ids in documents)
    if not total:
        raise ValueError("There is no token to score: give at least one document of two tokens or more.")
    top = max(max(ids, default=0) for ids in documents)
    if top >= model.config.vocab_size or min(min(ids, default=0) for ids in documents) < 0:
        raise ValueError(f"Token ids must lie in 0 .. {model.config.vocab_size - 1}; the text has ids up to {top}.")
    with tqdm(total=total, unit="token", disable=not progress, leave=False) as bar:
        for group in _grouped(windows(documents, context, stride), max(2048, context)):
            ids, rows, targets = [], [], []
            for window in group:
                rows += range(len(ids) + window.first, len(ids) + len(window.ids))
                ids += window.ids
                targets += window.targets
            step = Step.uncached([len(window.ids) for window in group], model.device)
            yield (*_tensors(model.device, ids), step, *_tensors(model.device, rows, targets))
            bar.update(len(targets))


def _grouped(pieces: Iterator[Window], max_tokens: int) -> Iterator[list[Window]]:
    group: list[Window] = []
    for piece in pieces:
        if group and sum(len(p.ids) for p in group) + len(piece.ids) > max_tokens:
            yield group
            group = []
        group.append(piece)
    if group:
        yield group


def _tensors(device: torch.device, *lists: list[int]) -> tuple[Tensor, ...]:
    return tuple(torch.tensor(ids, dtype=torch.int64, device=device) for ids in lists)
