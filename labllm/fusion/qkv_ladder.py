"""The ladder of the QKV projection: three GEMMs or one, and RoPE with the KV-cache write behind them.

Horizontal fusion joins GEMMs that read the same input side by side: their weights are stacked once, rows [q | k | v],
`[(Hq + 2 Hkv) D, H]`, and one GEMM's output is split by strides, which costs nothing. What it saves is two launches and
their ramps, two readings of x `[T, H]`, and the emptiness of a device on which the small GEMMs of k and v have too few
tiles; the weights, which are most of the bytes, are read once either way.

So it loses meaning as T grows: past T = peak rate / bandwidth FLOPs a byte (times e / 2) the GEMM is bound by its
arithmetic, which stacking does not change, and fusing what stands behind it saves what that takes and no more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch.nn.functional as F
from torch import Tensor

from labllm.bench import Ladder, Rung, axis
from labllm.fusion.eager_rope import eager_rope_kv_write
from labllm.fusion.rope import rope_kv_write
from labllm.fusion.rope_ladder import (
    LLAMA_8B,
    PICO,
    KvInputs,
    KvWrite,
    by_token_and_slot,
    eager_kv_cost,
    kv_cost,
    kv_inputs,
    turned,
    written,
)
from labllm.fusion.vertical import DTYPES, compiled_rung, draw
from labllm.roofline import DTYPE_BYTES, Cost, linear

TOKENS = (1, 4, 8, 16, 64, 256, 1024, 4096)
BLOCK_SIZE = 16


@dataclass(frozen=True)
class QkvProjection:
    """`tokens` hidden states of `hidden` elements, projected, turned and written to pages of 16 tokens."""

    tokens: int = axis(64, *TOKENS, unit="tokens", label="tokens")
    hidden: int = axis(4096, 256, 1024, 2048, 4096, 5120, 8192, label="hidden")
    q_heads: int = axis(32, 4, 8, 16, 32, 64, label="query heads")
    kv_heads: int = axis(8, 1, 2, 4, 8, 16, 32, label="KV heads")
    head_dim: int = axis(128, 64, 80, 96, 128, 256, label="head dim")
    dtype: str = axis("float16", *DTYPES)

    @property
    def heads(self) -> tuple[int, int, int]:
        """Heads of q, of k and of v."""
        return self.q_heads, self.kv_heads, self.kv_heads

    @property
    def kv(self) -> KvWrite:
        """What stands behind the GEMMs."""
        return KvWrite(self.tokens, BLOCK_SIZE, self.q_heads, self.kv_heads, self.head_dim, self.dtype)


class QkvInputs(NamedTuple):
    """x [T, H], weight [(Hq + 2 Hkv) D, H], the heads of q, k and v; caches, positions, angles, slots as `KvInputs`."""

    x: Tensor
    weight: Tensor
    heads: tuple[int, int, int]
    k_cache: Tensor
    v_cache: Tensor
    positions: Tensor
    cos_sin: Tensor
    slot_mapping: Tensor


def _inputs(w: QkvProjection, device: str, seed: int) -> QkvInputs:
    kv, drawn = kv_inputs(w.kv, device, seed), draw(w, device, seed + 1)
    weight = drawn(sum(w.heads) * w.head_dim, w.hidden) * w.hidden**-0.5
    return QkvInputs(drawn(w.tokens, w.hidden), weight, w.heads, *kv[3:])


def _apart(i: QkvInputs) -> list[Tensor]:
    """q, k and v `[T, heads, D]` by a GEMM each."""
    weights = i.weight.unflatten(0, (sum(i.heads), -1)).split(i.heads)
    return [F.linear(i.x, weight.flatten(0, 1)).unflatten(1, (len(weight), -1)) for weight in weights]


def _together(i: QkvInputs) -> tuple[Tensor, ...]:
    """The same by one GEMM, as slices of its output."""
    return F.linear(i.x, i.weight).unflatten(1, (sum(i.heads), -1)).split(i.heads, dim=1)


def _reference(i: QkvInputs, rows: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    wide = i._replace(x=i.x.double(), weight=i.weight.double())
    kv = KvInputs(*_together(wide), *i[3:])
    rows, tokens = by_token_and_slot(kv, rows)
    q, k = turned(kv.q, kv, rows), turned(kv.k, kv, tokens)
    return q.flatten(1), k.flatten(1), kv.v[tokens].flatten(1)


def _run(gemms: Callable[[QkvInputs], list[Tensor] | tuple[Tensor, ...]], rest: Callable[..., Tensor], i: QkvInputs):
    kv = KvInputs(*gemms(i), *i[3:])
    return written(kv, rest(*kv))


def _three(i: QkvInputs) -> tuple[Tensor, Tensor, Tensor]:
    return _run(_apart, eager_rope_kv_write, i)


def _compiled(*inputs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return _three(QkvInputs(*inputs))


def _three_fused(i: QkvInputs) -> tuple[Tensor, Tensor, Tensor]:
    return _run(_apart, rope_kv_write, i)


def _one(i: QkvInputs) -> tuple[Tensor, Tensor, Tensor]:
    return _run(_together, eager_rope_kv_write, i)


def _one_fused(i: QkvInputs) -> tuple[Tensor, Tensor, Tensor]:
    return _run(_together, rope_kv_write, i)


def _gemms(w: QkvProjection, reads: int) -> Cost:
    """x read `reads` times, the weights once, q, k and v written."""
    gemm, e = linear(w.tokens, w.hidden, sum(w.heads) * w.head_dim, DTYPE_BYTES[w.dtype]), DTYPE_BYTES[w.dtype]
    return gemm + Cost(0, (reads - 1) * w.tokens * w.hidden * e)


def _outputs(w: QkvProjection) -> float:
    return w.tokens * sum(w.heads) * w.head_dim * DTYPE_BYTES[w.dtype]


def _cost(w: QkvProjection) -> Cost:
    """x and the weights read, turned q and the cache's slots written; what the GEMM leaves need not reach memory."""
    both = _gemms(w, 1) + kv_cost(w.kv)
    return Cost(both.flops, both.bytes - 2 * _outputs(w))


def _rung(name: str, run: Callable, about: str, reads: int, behind: Callable[[KvWrite], Cost], fused: bool) -> Rung:
    return Rung(
        name,
        run,
        about=about,
        needs=("triton",) if fused else (),
        moved=lambda w: _gemms(w, reads) + behind(w.kv),
        memory=lambda w: (2 if fused else 5) * _outputs(w),
        sources=("labllm.kernels.rope_kv_write",) if fused else (),
    )


QKV_PROJECTION = Ladder(
    name="qkv-projection",
    title="Q, K and V: three GEMMs or one, RoPE and the cache's write behind them",
    workload=QkvProjection,
    inputs=_inputs,
    input_bytes=lambda w: _gemms(w, 1).bytes + _outputs(w),
    cost=_cost,
    reference=_reference,
    rungs=(
        _rung("three GEMMs", _three, "a GEMM for each of q, k and v, then each operation", 3, eager_kv_cost, False),
        compiled_rung(_compiled, memory=lambda w: 2 * _outputs(w)),
        _rung(
            "one GEMM", _one, "the weights are stacked: x is read once, one launch for three", 1, eager_kv_cost, False
        ),
        _rung("three GEMMs, one launch", _three_fused, "RoPE and write are one launch behind three", 3, kv_cost, True),
        _rung("one GEMM, one launch", _one_fused, "q, k and v are read where the GEMM left them", 1, kv_cost, True),
    ),
    sizes={
        "fast": (QkvProjection(4, 256, *PICO, "float32"),),
        "small": tuple(QkvProjection(t, 256, *PICO, "float32") for t in TOKENS[:6]),
        "full": tuple(QkvProjection(t, 4096, *LLAMA_8B, "bfloat16") for t in TOKENS),
    },
)
