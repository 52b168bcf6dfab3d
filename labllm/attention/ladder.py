"""The two attention ladders: decode (one new query a sequence) and prefill (a whole prompt at once).

Both have the same first rung, and it loses for two reasons: without a cache decode recomputes every past query, and
without tiles the scores visit memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from labllm.attention import dense
from labllm.attention.dense import Dense
from labllm.attention.flash.rungs import FLASH
from labllm.attention.grouped import grouped
from labllm.attention.naive import naive, naive_cost, naive_memory
from labllm.attention.sdpa import sdpa
from labllm.attention.tiled import tiled, tiled_cost, tiled_memory
from labllm.bench import Ladder, Rung, axis, torch_dtype
from labllm.roofline import DTYPE_BYTES, Cost, attention

DTYPES = ("float32", "float16", "bfloat16")
PICO, LLAMA_8B = (4, 2, 64), (32, 8, 128)
CONTEXTS = (128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768)


@dataclass(frozen=True)
class Decode:
    """One new token for each of `batch` sequences, each with `context` keys, the new token's included."""

    context: int = axis(1024, *CONTEXTS, unit="tokens", label="context")
    batch: int = axis(1, 1, 4, 16, 64, unit="sequences", label="batch")
    q_heads: int = axis(32, 4, 8, 16, 32, 64, label="query heads")
    kv_heads: int = axis(8, 1, 2, 4, 8, 16, 32, label="KV heads")
    head_dim: int = axis(128, 64, 128, 256, label="head dim")
    dtype: str = axis("float16", *DTYPES)


@dataclass(frozen=True)
class Prefill:
    """`length` new tokens of each of `batch` sequences, behind `prefix` cached ones, under a causal or no mask."""

    length: int = axis(1024, *CONTEXTS, unit="tokens", label="length")
    prefix: int = axis(0, 0, 512, 4096, unit="tokens", label="cached prefix")
    batch: int = axis(1, 1, 4, 16, unit="sequences", label="batch")
    q_heads: int = axis(32, 4, 8, 16, 32, 64, label="query heads")
    kv_heads: int = axis(8, 1, 2, 4, 8, 16, 32, label="KV heads")
    head_dim: int = axis(128, 64, 128, 256, label="head dim")
    mask: str = axis("causal", "causal", "full")
    dtype: str = axis("float16", *DTYPES)


def _draw(w: Decode | Prefill, queries: int, keys: int, causal: bool, device: str, seed: int) -> Dense:
    generator = torch.Generator(device).manual_seed(seed)
    shapes = [
        (w.batch, heads, length, w.head_dim)
        for heads, length in ((w.q_heads, queries), (w.kv_heads, keys), (w.kv_heads, keys))
    ]
    return Dense(*(torch.randn(s, device=device, dtype=torch_dtype(w), generator=generator) for s in shapes), causal)


def _cost(w: Decode | Prefill, queries: int, keys: int, causal: bool) -> Cost:
    return attention(w.batch, queries, keys, w.q_heads, w.kv_heads, w.head_dim, DTYPE_BYTES[w.dtype], causal)


def _reference(inputs: Dense, rows: torch.Tensor | None) -> torch.Tensor:
    return dense.reference(inputs.q, inputs.k, inputs.v, rows, inputs.causal)


def _ungrouped(w: Decode | Prefill) -> str | None:
    if w.q_heads == w.kv_heads:
        return None
    return "torch's memory-efficient kernel takes no grouped heads: choose as many KV heads as query heads"


def _by_sdpa(backend: str, inputs: Dense) -> torch.Tensor:
    return sdpa(backend)(*inputs)


def _peer(backend: str, **limits: Any) -> Rung:
    return Rung(f"sdpa[{backend}]", partial(_by_sdpa, backend), peer=True, sources=(sdpa,), **limits)


PEERS = (
    _peer("math"),
    _peer("efficient", needs=("cuda",), refuses=_ungrouped),
    _peer("flash"),
    _peer("cudnn", needs=("cuda",)),
)


def _whole_history(inputs: Dense) -> Dense:
    """Queries for every position, as a decoder without a cache must recompute them; the last is the one asked for."""
    batch, heads, _, dim = inputs.q.shape
    shape = (batch, heads, inputs.k.shape[2] - 1, dim)
    past = torch.randn(shape, device=inputs.q.device, dtype=inputs.q.dtype)
    return inputs._replace(q=torch.cat([past, inputs.q], dim=2))


def _naive(inputs: Dense) -> torch.Tensor:
    return naive(*inputs)


def _last_of_naive(inputs: Dense) -> torch.Tensor:
    return naive(*inputs)[:, :, -1:]


def _tiled(inputs: Dense) -> torch.Tensor:
    return tiled(*inputs)


def _grouped(inputs: Dense) -> torch.Tensor:
    return grouped(inputs.q, inputs.k, inputs.v)


def _naive_moves(w: Decode | Prefill, queries: int, keys: int) -> Cost:
    causal = getattr(w, "mask", "causal") == "causal"
    return naive_cost(w.batch, queries, keys, w.q_heads, w.kv_heads, w.head_dim, DTYPE_BYTES[w.dtype], causal)


def _naive_holds(w: Decode | Prefill, queries: int, keys: int) -> float:
    return naive_memory(w.batch, queries, keys, w.q_heads, w.head_dim, DTYPE_BYTES[w.dtype])


def _tiled_moves(w: Prefill) -> Cost:
    keys, causal = w.prefix + w.length, w.mask == "causal"
    return tiled_cost(w.batch, w.length, keys, w.q_heads, w.kv_heads, w.head_dim, DTYPE_BYTES[w.dtype], causal)


def _tiled_holds(w: Prefill) -> float:
    return tiled_memory(w.batch, w.q_heads, w.head_dim, w.length, DTYPE_BYTES[w.dtype])


def _decode_cost(w: Decode) -> Cost:
    return _cost(w, 1, w.context, causal=True)


def _prefill_cost(w: Prefill) -> Cost:
    return _cost(w, w.length, w.prefix + w.length, w.mask == "causal")


DECODE = Ladder(
    name="decode-attention",
    title="Decode attention: one new token a sequence",
    workload=Decode,
    inputs=lambda w, device, seed: _draw(w, 1, w.context, True, device, seed),
    input_bytes=lambda w: _decode_cost(w).bytes,
    cost=_decode_cost,
    reference=_reference,
    rungs=(
        Rung(
            "recompute",
            _last_of_naive,
            _whole_history,
            about="no cache: every past query is attended again",
            moved=lambda w: _naive_moves(w, w.context, w.context),
            memory=lambda w: _naive_holds(w, w.context, w.context),
            sources=(naive,),
        ),
        Rung(
            "cached, repeated",
            _naive,
            about="one query against the cache, but K and V are repeated for each query head",
            moved=lambda w: _naive_moves(w, 1, w.context),
            memory=lambda w: _naive_holds(w, 1, w.context),
            sources=(naive,),
        ),
        Rung("cached", _grouped, about="query heads grouped: the cache is read once", sources=(grouped,)),
        *PEERS,
    ),
    sizes={
        "fast": tuple(Decode(c, 1, *PICO, "float32") for c in (128, 512)),
        "small": tuple(Decode(c, 1, *PICO, "float32") for c in (128, 256, 512, 1024, 2048)),
        "full": tuple(
            Decode(c, b, *heads, "bfloat16") for heads in (PICO, LLAMA_8B) for b in (1, 16, 64) for c in CONTEXTS[1:]
        ),
    },
)

PREFILL = Ladder(
    name="prefill-attention",
    title="Prefill attention: a whole prompt at once",
    workload=Prefill,
    inputs=lambda w, device, seed: _draw(w, w.length, w.prefix + w.length, w.mask == "causal", device, seed),
    input_bytes=lambda w: _prefill_cost(w).bytes,
    cost=_prefill_cost,
    reference=_reference,
    rungs=(
        Rung(
            "naive",
            _naive,
            about="the whole score matrix visits memory six times",
            moved=lambda w: _naive_moves(w, w.length, w.prefix + w.length),
            memory=lambda w: _naive_holds(w, w.length, w.prefix + w.length),
            sources=(naive,),
        ),
        Rung(
            "tiled",
            _tiled,
            about="online softmax: only one tile of scores exists at a time, but it still visits memory",
            moved=_tiled_moves,
            memory=_tiled_holds,
            sources=(tiled,),
        ),
        *FLASH,
        *PEERS,
    ),
    sizes={
        "fast": tuple(Prefill(n, 0, 1, *PICO, "causal", "float32") for n in (128, 256)),
        "small": tuple(Prefill(n, 0, 1, *PICO, "causal", "float32") for n in (128, 256, 512, 1024)),
        "full": (
            *(
                Prefill(n, 0, b, *heads, "causal", "bfloat16")
                for heads in (PICO, LLAMA_8B)
                for b in (1, 4)
                for n in CONTEXTS[1:]
            ),
            Prefill(8192, 0, 4, 32, 32, 128, "causal", "bfloat16"),
            Prefill(4096, 0, 4, 32, 32, 64, "causal", "bfloat16"),
        ),
    },
)
