"""Lab 02: write a step's keys and values behind what each sequence has already cached.

Teaches what a KV cache is: preallocated memory and a position for each sequence. The writing is in place; a cache
that is copied at every step would move far more bytes than it saves.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Generator, Tensor

from labllm.attention.grouped import grouped
from labllm.bench import Rung
from labllm.labs.exercise import Case, Exercise, Function, Mistake


def reference(
    k_cache: torch.Tensor, v_cache: torch.Tensor, k: torch.Tensor, v: torch.Tensor, start: torch.Tensor
) -> None:
    """Writes k, v [B, Hkv, T, D] into k_cache, v_cache [B, Hkv, S, D] at positions start [B] to start + T."""
    rows = torch.arange(k.shape[0], device=k.device)[:, None]
    slots = start[:, None] + torch.arange(k.shape[2], device=k.device)  # [B, T]
    k_cache.transpose(1, 2)[rows, slots] = k.transpose(1, 2)
    v_cache.transpose(1, 2)[rows, slots] = v.transpose(1, 2)


def _first_start_for_all(k_cache: Tensor, v_cache: Tensor, k: Tensor, v: Tensor, start: Tensor) -> None:
    reference(k_cache, v_cache, k, v, start[:1].expand_as(start))


def _always_at_zero(k_cache: Tensor, v_cache: Tensor, k: Tensor, v: Tensor, start: Tensor) -> None:
    reference(k_cache, v_cache, k, v, torch.zeros_like(start))


def _one_too_early(k_cache: Tensor, v_cache: Tensor, k: Tensor, v: Tensor, start: Tensor) -> None:
    reference(k_cache, v_cache, k, v, start - 1)


def _only_one_token(k_cache: Tensor, v_cache: Tensor, k: Tensor, v: Tensor, start: Tensor) -> None:
    reference(k_cache, v_cache, k[:, :, :1], v[:, :, :1], start)


def _keys_into_both(k_cache: Tensor, v_cache: Tensor, k: Tensor, v: Tensor, start: Tensor) -> None:
    reference(k_cache, v_cache, k, k, start)


def _new_tensors(k_cache: Tensor, v_cache: Tensor, k: Tensor, v: Tensor, start: Tensor) -> tuple[Tensor, Tensor]:
    return torch.cat([k_cache, k], dim=2), torch.cat([v_cache, v], dim=2)


def _nothing(k_cache: Tensor, v_cache: Tensor, k: Tensor, v: Tensor, start: Tensor) -> None:
    return None


def _last_slots(k_cache: Tensor, v_cache: Tensor, k: Tensor, v: Tensor, start: Tensor) -> None:
    reference(k_cache, v_cache, k, v, torch.full_like(start, k_cache.shape[2] - k.shape[2]))


def _case(name: str, heads: int, slots: int, new: int, *start: int) -> Case:
    return Case(name, lambda g: _draw(g, heads, slots, new, start))


def _draw(generator: Generator, heads: int, slots: int, new: int, start: tuple[int, ...]) -> tuple[Tensor, ...]:
    sizes = (slots, slots, new, new)
    drawn = (torch.randn(len(start), heads, size, 8, generator=generator) for size in sizes)
    return *drawn, torch.tensor(start, dtype=torch.int64)


def as_rung(append: Function) -> Rung:
    """Append with the learner's function, then attend, for `labllm.attention.ladder.DECODE`."""

    def prepare(inputs: Any) -> tuple[Tensor, ...]:
        q, k, v, _ = inputs
        cached = k.shape[2] - 1
        start = torch.full((k.shape[0],), cached, dtype=torch.int64, device=k.device)
        caches = (torch.cat([x[:, :, :cached], torch.full_like(x[:, :, :1], float("nan"))], dim=2) for x in (k, v))
        return q, *caches, k[:, :, cached:].clone(), v[:, :, cached:].clone(), start

    def run(state: tuple[Tensor, ...]) -> Tensor:
        q, k_cache, v_cache, k, v, start = state
        append(k_cache, v_cache, k, v, start)
        return grouped(q, k_cache, v_cache)

    return Rung("yours", run, prepare, about="your append, then one query against the cache", sources=(append, grouped))


EXERCISE = Exercise(
    name="kv_append",
    lab=2,
    title="Append a step's keys and values to a preallocated cache, in place.",
    signature="""kv_append(
    k_cache: torch.Tensor, v_cache: torch.Tensor, k: torch.Tensor, v: torch.Tensor, start: torch.Tensor
) -> None""",
    shapes="""
k_cache, v_cache  [B, Hkv, S, D]: changed in place, S slots for each sequence
k, v              [B, Hkv, T, D]: keys and values of T new tokens a sequence
start             [B] int64: tokens that each sequence has in the cache already
returns nothing; every other slot keeps what it holds""",
    formula="""
k_cache[b, :, start[b] + t] = k[b, :, t]   for t = 0 ... T - 1
v_cache[b, :, start[b] + t] = v[b, :, t]""",
    reference=reference,
    library="an indexed write",
    timed=True,
    faster=reference,
    in_place=(0, 1),
    as_rung=as_rung,
    cases=(
        _case("prefill into an empty cache", 2, 8, 5, 0),
        _case("decode, equal lengths", 2, 8, 1, 3, 3),
        _case("decode, different lengths", 2, 8, 1, 1, 6, 4),
        _case("a chunk that fills the last slot", 1, 8, 3, 2, 5),
        _case("a batch of 16", 4, 64, 2, *range(1, 33, 2)),
    ),
    hints=(
        "Take one sequence first: which slots along dimension 2 of its cache belong to the new tokens?",
        "Assigning to a slice, cache[b, :, first:last] = ..., changes the cache itself; torch.cat makes a new tensor.",
        "start has one number for each sequence: loop over start.tolist(), or build an index tensor [B, T].",
    ),
    mistakes=(
        Mistake(
            "It uses the first sequence's start for all; each sequence has a length of its own.", _first_start_for_all
        ),
        Mistake("It writes from slot 0, over the cached prefix, instead of behind it.", _always_at_zero),
        Mistake(
            "It writes one slot too early: n cached tokens fill slots 0 to n - 1, so slot n is free.",
            _one_too_early,
        ),
        Mistake("It writes the first new token only; a step may bring T of them.", _only_one_token),
        Mistake("It writes the keys into both caches; v belongs into v_cache.", _keys_into_both),
        Mistake("It makes new tensors; whoever holds the cache never sees them.", _new_tensors),
        Mistake(
            "Nothing was written: assign to slots, as in `k_cache[...] = ...`; `k_cache = ...` only moves the name.",
            _nothing,
        ),
        Mistake(
            "It writes into the last slots of the cache; new tokens stand right behind the start[b] cached ones.",
            _last_slots,
        ),
    ),
)
