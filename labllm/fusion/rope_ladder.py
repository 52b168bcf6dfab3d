"""The ladder of RoPE and KV-cache write: many launches, what a compiler makes of them, and one.

q, k and v are slices of one packed tensor, as the QKV GEMM leaves them. The pages lie in random order, filled one
after the other as a prefill fills them; the answer is the turned queries and what the T slots then hold. One block as
long as the sequence is a contiguous cache.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from labllm.bench import Ladder, Rung, axis
from labllm.fusion import peers
from labllm.fusion.eager_rope import eager_rope_kv_write
from labllm.fusion.rope import rope_kv_write
from labllm.fusion.vertical import DTYPES, ROWS, compiled_rung, draw
from labllm.roofline import DTYPE_BYTES, Cost

PICO, LLAMA_8B = (4, 2, 64), (32, 8, 128)
THETA = 10000.0


@dataclass(frozen=True)
class KvWrite:
    """`tokens` new tokens of one sequence, written to pages of `block_size` tokens."""

    tokens: int = axis(4096, *ROWS, unit="tokens", label="new tokens")
    block_size: int = axis(16, 8, 16, 32, 64, 128, 256, 16384, unit="tokens", label="block size")
    q_heads: int = axis(32, 4, 8, 16, 32, 64, label="query heads")
    kv_heads: int = axis(8, 1, 2, 4, 8, 16, 32, label="KV heads")
    head_dim: int = axis(128, 64, 80, 96, 128, 256, label="head dim")
    dtype: str = axis("float16", *DTYPES)


class KvInputs(NamedTuple):
    """What `rope_kv_write` is given; the slots are the first T of the cache, each once."""

    q: Tensor
    k: Tensor
    v: Tensor
    k_cache: Tensor
    v_cache: Tensor
    positions: Tensor
    cos_sin: Tensor
    slot_mapping: Tensor


def kv_inputs(w: KvWrite, device: str, seed: int) -> KvInputs:
    """Slices of one packed tensor, caches of NaN, and positions from 0."""
    drawn = draw(w, device, seed)
    heads = w.q_heads, w.kv_heads, w.kv_heads
    q, k, v = drawn(w.tokens, sum(heads), w.head_dim).split(heads, dim=1)
    blocks = -(-w.tokens // w.block_size)
    shape = blocks, w.block_size, w.kv_heads, w.head_dim
    k_cache, v_cache = (torch.full(shape, float("nan"), dtype=q.dtype, device=device) for _ in "kv")
    positions = torch.arange(w.tokens, device=device)
    frequencies = THETA ** (-torch.arange(0, w.head_dim, 2, device=device) / w.head_dim)
    angles = torch.outer(positions.float(), frequencies)
    cos_sin = torch.cat((angles.cos(), angles.sin()), dim=-1)
    return KvInputs(q, k, v, k_cache, v_cache, positions, cos_sin, _slots(w, device, seed))


def _slots(w: KvWrite, device: str, seed: int) -> Tensor:
    """The first T slots of the cache: whole blocks in random order, then the one that is not full."""
    full, rest = divmod(w.tokens, w.block_size)
    order = torch.randperm(full, generator=torch.Generator().manual_seed(seed))
    slots = (order[:, None] * w.block_size + torch.arange(w.block_size)).flatten()
    return torch.cat((slots, full * w.block_size + torch.arange(rest))).to(device)


def written(inputs: KvInputs, q: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Turned queries by token, then keys and values by slot, one row each."""
    k, v = (cache.flatten(0, 1)[: len(q)].flatten(1) for cache in (inputs.k_cache, inputs.v_cache))
    return q.flatten(1), k, v


def turned(x: Tensor, inputs: KvInputs, which: Tensor) -> Tensor:
    """Tokens `which` of x `[T, heads, D]`, turned: `[R, heads, D]` float64."""
    half = x.shape[2] // 2
    angles = inputs.cos_sin[inputs.positions[which]].double()
    pairs = torch.complex(x[which, :, :half].double(), x[which, :, half:].double())
    pairs = pairs * torch.complex(angles[:, :half], angles[:, half:]).unsqueeze(1)
    return torch.cat((pairs.real, pairs.imag), dim=-1)


def by_token_and_slot(inputs: KvInputs, rows: Tensor | None) -> tuple[Tensor, Tensor]:
    """Which tokens' queries stand in `rows` (None: all) of an answer, and which tokens' keys and values."""
    rows = torch.arange(len(inputs.q), device=inputs.q.device) if rows is None else rows
    return rows, inputs.slot_mapping.argsort()[rows]


def _reference(inputs: KvInputs, rows: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    rows, tokens = by_token_and_slot(inputs, rows)
    q, k = turned(inputs.q, inputs, rows), turned(inputs.k, inputs, tokens)
    return q.flatten(1), k.flatten(1), inputs.v[tokens].double().flatten(1)


def qkv_elements(w: KvWrite) -> int:
    """Elements of q, k and v."""
    return w.tokens * (w.q_heads + 2 * w.kv_heads) * w.head_dim


def kv_cost(w: KvWrite) -> Cost:
    """q, k and v read and written once; angles of 4 bytes an element of a head; a position and a slot of 8 bytes."""
    turned = w.tokens * (w.q_heads + w.kv_heads) * w.head_dim
    moved = 2 * qkv_elements(w) * DTYPE_BYTES[w.dtype] + w.tokens * (4 * w.head_dim + 16)
    return Cost(3.0 * turned, moved)


def eager_kv_cost(w: KvWrite) -> Cost:
    """Of q and k: four products 4, a difference and a sum 3, the concatenation 2; k and v scattered, 2 each."""
    turned = w.tokens * (w.q_heads + w.kv_heads) * w.head_dim
    scattered = 2 * w.tokens * w.kv_heads * w.head_dim
    angles = w.tokens * (4 * w.head_dim + 16)
    return Cost(3.0 * turned, (9 * turned + 2 * scattered) * DTYPE_BYTES[w.dtype] + angles)


def _eager(inputs: KvInputs) -> tuple[Tensor, Tensor, Tensor]:
    return written(inputs, eager_rope_kv_write(*inputs))


def _fused(inputs: KvInputs) -> tuple[Tensor, Tensor, Tensor]:
    return written(inputs, rope_kv_write(*inputs))


def _flashinfer(state: peers.Bound) -> tuple[Tensor, Tensor, Tensor]:
    return written(KvInputs(*state.arguments[:8]), peers.flashinfer_rope_kv_write(state))


def _flashinfer_cost(w: KvWrite) -> Cost:
    """A turned key is written and read once more."""
    cost = kv_cost(w)
    return Cost(cost.flops, cost.bytes + 2 * w.tokens * w.kv_heads * w.head_dim * DTYPE_BYTES[w.dtype])


def _eager_of(*inputs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return _eager(KvInputs(*inputs))


def q_bytes(w: KvWrite) -> float:
    """Bytes of the queries."""
    return w.tokens * w.q_heads * w.head_dim * DTYPE_BYTES[w.dtype]


def programs(w: KvWrite) -> int:
    """Programs of the launch: one a token."""
    return w.tokens


def kv_sizes(*more: KvWrite) -> dict[str, tuple[KvWrite, ...]]:
    """A curve over tokens; `more` joins its long form."""
    return {
        "fast": tuple(KvWrite(t, 16, *PICO, "float32") for t in (1, 64)),
        "small": tuple(KvWrite(t, 16, *PICO, "float32") for t in ROWS[:6]),
        "full": (*(KvWrite(t, 16, *LLAMA_8B, "bfloat16") for t in ROWS), *more),
    }


ROPE_KV_WRITE = Ladder(
    name="rope-kv-write",
    title="RoPE and the write into a paged cache",
    workload=KvWrite,
    inputs=kv_inputs,
    input_bytes=lambda w: 2 * qkv_elements(w) * DTYPE_BYTES[w.dtype],
    cost=kv_cost,
    reference=_reference,
    rungs=(
        Rung(
            "eager",
            _eager,
            about="products, sums, concatenation and scatter: a launch and a pass over memory each",
            moved=eager_kv_cost,
            memory=lambda w: 4 * q_bytes(w),
        ),
        compiled_rung(_eager_of, memory=q_bytes),
        Rung(
            "triton",
            _fused,
            about="one launch: a turned key is stored in its page at once",
            needs=("triton",),
            memory=q_bytes,
            programs=programs,
            sources=("labllm.kernels.rope_kv_write",),
        ),
        Rung(
            "flashinfer, in place",
            _flashinfer,
            peers.flashinfer_pages,
            needs=("cuda",),
            refuses=peers.only_half,
            moved=_flashinfer_cost,
            in_place=True,
            peer=True,
        ),
    ),
    sizes=kv_sizes(
        *(KvWrite(16384, b, *LLAMA_8B, "bfloat16") for b in (8, 64, 256, 16384)),
        KvWrite(16384, 16, 32, 32, 128, "bfloat16"),
        KvWrite(4096, 16, 64, 8, 128, "bfloat16"),
    ),
)
