"""Sampling: one row of logits a sequence becomes one token id, the whole batch at once and on the device.

    logits [B, V] -> repetition penalty -> / temperature -> min-p, top-k, top-p -> draw -> ids [B]

Requests of one batch may want different things: parameters are tensors [B], and a greedy row is one whose draw is
thrown away. What nobody in the batch wants is skipped, which the host decides from parameters it knows anyway. So no
step waits for the device: the ids stay there and feed the next step.

Cost: an argmax where all are greedy; a sort of [B, V] where anybody filters. Invariant: a row's id depends on its own
logits, parameters, seed and position, never on its neighbours. A graph may capture `sample` while the batch's tensors
are refilled in place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from labllm.serving.filters import keep_likely
from labllm.serving.noise import draw
from labllm.serving.params import SamplingParams


class SamplingRow(NamedTuple):
    """What sampling must know of one sequence: `position` counts the tokens it has written, `seat` is its place.

    `seed` is the request's own or one that the engine gave it.
    """

    params: SamplingParams
    seed: int = 0
    position: int = 0
    seat: int = 0


class Logprobs(NamedTuple):
    """Log probabilities before penalty and temperature: of the chosen ids, [B] float32, and of the likeliest tokens.

    ids [B, N] int64 and values [B, N] float32, N the most that any request of the batch asked for.
    """

    chosen: Tensor
    ids: Tensor
    values: Tensor

    def on_host(self, counts: Sequence[int | None]) -> list[TokenLogprobs | None]:
        """A record a row with counts[b] of the likeliest tokens, or none where that is None. Waits for the device."""
        chosen, ids, values = self.chosen.tolist(), self.ids.tolist(), self.values.tolist()
        return [
            None if count is None else TokenLogprobs(chosen[b], dict(zip(ids[b][:count], values[b], strict=False)))
            for b, count in enumerate(counts)
        ]


class TokenLogprobs(NamedTuple):
    """Log probability of a chosen token, and of the likeliest tokens by id, the likeliest first."""

    chosen: float
    likeliest: dict[int, float]


class Sampled(NamedTuple):
    """ids [B] int64 on the device, and log probabilities where somebody asked for them."""

    ids: Tensor
    logprobs: Logprobs | None = None


@dataclass(frozen=True, eq=False)
class SamplingBatch:
    """The parameters of B rows as tensors [B]; what nobody wants has none. Make one with `of`."""

    size: int
    temperature: Tensor | None = None
    seeds: Tensor | None = None
    positions: Tensor | None = None
    top_k: Tensor | None = None
    top_p: Tensor | None = None
    min_p: Tensor | None = None
    penalty: Tensor | None = None
    seats: Tensor | None = None
    num_logprobs: int | None = None

    @property
    def greedy(self) -> bool:
        """Whether the largest logit of every row, as it is, is all that anybody wants."""
        return self.temperature is None and self.penalty is None and self.num_logprobs is None

    @classmethod
    def of(cls, rows: Sequence[SamplingRow], device: torch.device | str = "cpu") -> SamplingBatch:
        """The batch of these rows; tensors travel to `device` without waiting for it."""
        asked = [row.params for row in rows]

        def sent(values: list, dtype: torch.dtype) -> Tensor:
            pinned = torch.device(device).type == "cuda"
            return torch.tensor(values, dtype=dtype, pin_memory=pinned).to(device, non_blocking=True)

        parts: dict[str, Tensor] = {}
        if not all(p.greedy for p in asked):
            parts["temperature"] = sent([p.temperature for p in asked], torch.float32)
            parts["seeds"] = sent([row.seed for row in rows], torch.int64)
            parts["positions"] = sent([row.position for row in rows], torch.int64)
        if any(p.filters for p in asked):
            parts["top_k"] = sent([2**31 if p.top_k == -1 else p.top_k for p in asked], torch.int64)
            parts["top_p"] = sent([p.top_p for p in asked], torch.float32)
            parts["min_p"] = sent([p.min_p for p in asked], torch.float32)
        if any(p.repetition_penalty != 1 for p in asked):
            parts["penalty"] = sent([p.repetition_penalty for p in asked], torch.float32)
            parts["seats"] = sent([row.seat for row in rows], torch.int64)
        counts = [p.logprobs for p in asked if p.logprobs is not None]
        return cls(len(rows), **parts, num_logprobs=max(counts, default=None))

    def part(self, start: int, end: int) -> SamplingBatch:
        """Rows start .. end - 1 alone."""
        tensors = {name: value[start:end] for name, value in vars(self).items() if isinstance(value, Tensor)}
        return replace(self, size=end - start, **tensors)

    def next(self) -> SamplingBatch:
        """The batch of the same sequences one token later, without a word from the host."""
        return self if self.positions is None else replace(self, positions=self.positions + 1)


class Sampler:
    """Chooses tokens for up to max_num_seqs sequences over a vocabulary of vocab_size.

    Where a request has a repetition penalty, a mask [max_num_seqs, V] remembers which tokens each seat has seen; it is
    made when the first such request is admitted.
    """

    def __init__(self, vocab_size: int, device: torch.device | str = "cpu", max_num_seqs: int = 256) -> None:
        self.vocab_size, self.device, self.max_num_seqs = vocab_size, torch.device(device), max_num_seqs
        self.seen: Tensor | None = None
        self._yes = torch.ones((), dtype=torch.bool, device=self.device)  # a Python bool would travel from the host

    def admit(self, seat: int, ids: Sequence[int]) -> None:
        """Take a sequence with a repetition penalty into `seat`: `ids` are all tokens it has read or written.

        Raises ValueError for a seat that does not exist.
        """
        if not 0 <= seat < self.max_num_seqs:
            raise ValueError(f"There are seats 0 to {self.max_num_seqs - 1}; got {seat}.")
        if self.seen is None:
            self.seen = torch.zeros(self.max_num_seqs, self.vocab_size, dtype=torch.bool, device=self.device)
        self.seen[seat] = False
        self.seen[seat, torch.tensor(ids, dtype=torch.int64, device=self.device)] = True

    def sample(self, logits: Tensor, batch: SamplingBatch) -> Sampled:
        """logits [B, V] of any floating dtype -> the next id of each row. Raises ValueError for another shape."""
        if logits.shape != (batch.size, self.vocab_size):
            raise ValueError(f"Logits must be [{batch.size}, {self.vocab_size}] for this batch; got {[*logits.shape]}.")
        if batch.greedy:
            return Sampled(logits.argmax(dim=-1))
        scores = self._penalised(logits.float(), batch)
        ids = scores.argmax(dim=-1)
        if batch.temperature is not None:
            ids = torch.where(batch.temperature == 0, ids, self._drawn(scores, batch))
        if batch.seats is not None and self.seen is not None:
            self.seen.index_put_((batch.seats, ids), self._yes)
        return Sampled(ids, None if batch.num_logprobs is None else _logprobs(logits, ids, batch.num_logprobs))

    def _penalised(self, scores: Tensor, batch: SamplingBatch) -> Tensor:
        """Scores of seen tokens divided by the penalty where positive, multiplied where negative."""
        if batch.penalty is None:
            return scores
        if self.seen is None:
            raise ValueError("A request with a repetition penalty must be admitted to a seat before it is sampled.")
        penalty = batch.penalty[:, None]
        pulled = torch.where(scores > 0, scores / penalty, scores * penalty)
        return torch.where(self.seen[batch.seats], pulled, scores)

    def _drawn(self, scores: Tensor, batch: SamplingBatch) -> Tensor:
        heat = torch.where(batch.temperature == 0, 1.0, batch.temperature)
        scores = scores / heat[:, None]
        if batch.top_k is not None:
            scores = keep_likely(scores, batch.top_k, batch.top_p, batch.min_p)
        return draw(scores, batch.seeds, batch.positions)


def _logprobs(logits: Tensor, ids: Tensor, count: int) -> Logprobs:
    every = logits.float().log_softmax(dim=-1)
    values, likeliest = every.topk(count, dim=-1)
    return Logprobs(every.gather(-1, ids[:, None])[:, 0], likeliest, values)
