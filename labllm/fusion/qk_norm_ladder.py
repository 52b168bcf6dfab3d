"""The ladder of QK-norm, RoPE and KV-cache write: what a Qwen3 layer does between its QKV GEMM and its attention.

Heads are normalised over their own D elements, so a program that holds whole heads reduces them on the way to turning
them. Taken apart, the norms are two launches that read and write q and k once more.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch.nn.functional as F
from torch import Tensor

from labllm.bench import Ladder, Rung
from labllm.fusion.eager_rope import eager_qk_norm_rope_kv_write
from labllm.fusion.rope import qk_norm_rope_kv_write, rope_kv_write
from labllm.fusion.rope_ladder import (
    KvInputs,
    KvWrite,
    by_token_and_slot,
    eager_kv_cost,
    kv_cost,
    kv_inputs,
    kv_sizes,
    programs,
    q_bytes,
    qkv_elements,
    turned,
    written,
)
from labllm.fusion.vertical import compiled_rung, draw, triton_rung
from labllm.roofline import DTYPE_BYTES, Cost

EPS = 1e-6


class QkNormInputs(NamedTuple):
    """kv, the norms' weights [D], and eps."""

    kv: KvInputs
    q_weight: Tensor
    k_weight: Tensor
    eps: float

    @property
    def arguments(self) -> tuple[Any, ...]:
        """As `qk_norm_rope_kv_write` takes them."""
        return *self.kv[:3], self.q_weight, self.k_weight, *self.kv[3:], self.eps


def _inputs(w: KvWrite, device: str, seed: int) -> QkNormInputs:
    drawn = draw(w, device, seed + 1)
    weights = (1 + drawn(w.head_dim) / 4 for _ in "qk")
    return QkNormInputs(kv_inputs(w, device, seed), *weights, EPS)


def _norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    x = x.double()
    return x / (x.square().mean(-1, keepdim=True) + eps).sqrt() * weight.double()


def _reference(inputs: QkNormInputs, rows: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    kv = inputs.kv
    rows, tokens = by_token_and_slot(kv, rows)
    q = turned(_norm(kv.q, inputs.q_weight, inputs.eps), kv, rows)
    k = turned(_norm(kv.k, inputs.k_weight, inputs.eps), kv, tokens)
    return q.flatten(1), k.flatten(1), kv.v[tokens].double().flatten(1)


def _norm_cost(w: KvWrite, passes: float, flops: float = 4.0) -> Cost:
    heads = w.tokens * (w.q_heads + w.kv_heads) * w.head_dim
    return Cost(flops * heads, passes * heads + 2 * w.head_dim * DTYPE_BYTES[w.dtype])


def _cost(w: KvWrite) -> Cost:
    """The norms add arithmetic and their weights; what they read and write is read and written anyway."""
    return kv_cost(w) + _norm_cost(w, 0)


def _eager_cost(w: KvWrite) -> Cost:
    """Norms with float32 in between: square 2, mean 1, scale 2, weight 2; half precision converts before and after."""
    e = DTYPE_BYTES[w.dtype]
    return eager_kv_cost(w) + _norm_cost(w, 28 if w.dtype == "float32" else 4 * e + 28)


def _apart_cost(w: KvWrite) -> Cost:
    return kv_cost(w) + _norm_cost(w, 2 * DTYPE_BYTES[w.dtype])


def _eager(inputs: QkNormInputs) -> tuple[Tensor, Tensor, Tensor]:
    return written(inputs.kv, eager_qk_norm_rope_kv_write(*inputs.arguments))


def _eager_of(*parts: Any) -> tuple[Tensor, Tensor, Tensor]:
    return _eager(QkNormInputs(*parts))


def _apart(inputs: QkNormInputs) -> tuple[Tensor, Tensor, Tensor]:
    kv, dim = inputs.kv, inputs.q_weight.shape
    q = F.rms_norm(kv.q, dim, inputs.q_weight, inputs.eps)
    k = F.rms_norm(kv.k, dim, inputs.k_weight, inputs.eps)
    return written(kv, rope_kv_write(q, k, *kv[2:]))


def _fused(inputs: QkNormInputs) -> tuple[Tensor, Tensor, Tensor]:
    return written(inputs.kv, qk_norm_rope_kv_write(*inputs.arguments))


QK_NORM_ROPE_KV_WRITE = Ladder(
    name="qk-norm-rope-kv-write",
    title="QK-norm, RoPE and the write into a KV cache",
    workload=KvWrite,
    inputs=_inputs,
    input_bytes=lambda w: 2 * qkv_elements(w) * DTYPE_BYTES[w.dtype],
    cost=_cost,
    reference=_reference,
    rungs=(
        Rung(
            "eager",
            _eager,
            about="the formulas as they read: a launch and a pass over memory each",
            moved=_eager_cost,
            memory=lambda w: 8.0 * q_bytes(w),
        ),
        compiled_rung(_eager_of, memory=q_bytes),
        triton_rung(
            "norms apart",
            _apart,
            "two norms by the library, then one launch: q and k are written and read once more",
            "rope_kv_write",
            moved=_apart_cost,
            memory=lambda w: 3.0 * q_bytes(w),
            programs=programs,
        ),
        triton_rung(
            "triton",
            _fused,
            "one launch: a head is normalised in the registers in which it is turned",
            "rope_kv_write",
            memory=q_bytes,
            programs=programs,
        ),
    ),
    sizes=kv_sizes(),
)
