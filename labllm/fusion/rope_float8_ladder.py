"""The ladder of RoPE and the write into a float8 cache: the cache takes half the room, and the write half the bytes.

Each KV head has a static scale, as a calibration leaves it: here from the largest key and value that there are. The
cache holds x / scale, rounded once from float32; the metric 'distance to exact' is what that rounding costs.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from labllm.bench import CannotRun, Ladder, Rung
from labllm.fusion.check import no_float8
from labllm.fusion.codes import LIMITS, CloseCodes, Codes
from labllm.fusion.eager_rope import eager_rope_kv_write
from labllm.fusion.rope import rope_kv_write
from labllm.fusion.rope_ladder import (
    KvInputs,
    KvWrite,
    by_token_and_slot,
    eager_kv_cost,
    kv_cost,
    kv_inputs,
    kv_sizes,
    q_bytes,
    qkv_elements,
    turned,
)
from labllm.fusion.vertical import compiled_rung, triton_rung
from labllm.roofline import DTYPE_BYTES, Cost

FLOAT8 = torch.float8_e4m3fn
Answer = tuple[Tensor, Codes, Codes]


class Float8Inputs(NamedTuple):
    """kv, whose caches are float8_e4m3fn, and scales [Hkv] float32."""

    kv: KvInputs
    k_scale: Tensor
    v_scale: Tensor

    @property
    def arguments(self) -> tuple[Tensor, ...]:
        """As `rope_kv_write` takes them."""
        return *self.kv, self.k_scale, self.v_scale


def _inputs(w: KvWrite, device: str, seed: int) -> Float8Inputs:
    kv = kv_inputs(w, device, seed)
    k_cache, v_cache = (torch.zeros_like(cache, dtype=torch.uint8).view(FLOAT8) for cache in (kv.k_cache, kv.v_cache))
    scales = (x.float().abs().amax((0, 2)) / LIMITS[FLOAT8] for x in (math.sqrt(2) * kv.k, kv.v))
    return Float8Inputs(kv._replace(k_cache=k_cache, v_cache=v_cache), *scales)


def _exact(inputs: Float8Inputs, rows: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Turned q [R, Hq, D] by token, turned k and v [R, Hkv, D] by slot, not rounded."""
    kv = inputs.kv
    rows, tokens = by_token_and_slot(kv, rows)
    return turned(kv.q, kv, rows), turned(kv.k, kv, tokens), kv.v[tokens].double()


def _own(inputs: Float8Inputs, rows: Tensor | None) -> Answer:
    q, k, v = _exact(inputs, rows)
    k_scale, v_scale = (scale.double()[:, None] for scale in (inputs.k_scale, inputs.v_scale))
    return q, Codes(k / k_scale, k_scale), Codes(v / v_scale, v_scale)


def _written(inputs: Float8Inputs, q: Tensor) -> Answer:
    k, v = (cache.flatten(0, 1)[: len(q)] for cache in (inputs.kv.k_cache, inputs.kv.v_cache))
    return q, Codes(k, inputs.k_scale[:, None]), Codes(v, inputs.v_scale[:, None])


def _eager(inputs: Float8Inputs) -> Answer:
    return _written(inputs, eager_rope_kv_write(*inputs.arguments))


def _eager_of(*parts: Any) -> Answer:
    return _eager(Float8Inputs(*parts))


def _fused(inputs: Float8Inputs) -> Answer:
    return _written(inputs, rope_kv_write(*inputs.arguments))


def _where_float8_is(inputs: Float8Inputs) -> Float8Inputs:
    if reason := no_float8(inputs.kv.q.device.type):
        raise CannotRun(reason)
    return inputs


def _saved(w: KvWrite) -> float:
    return 2 * w.tokens * w.kv_heads * w.head_dim * (DTYPE_BYTES[w.dtype] - 1)


def _cost(w: KvWrite) -> Cost:
    """As into a cache of the dtype of q, but one byte an element written, and a product more for k and v each."""
    cost, written = kv_cost(w), 2 * w.tokens * w.kv_heads * w.head_dim
    return Cost(cost.flops + written, cost.bytes - _saved(w) + 8 * w.kv_heads)


def _eager_cost(w: KvWrite) -> Cost:
    """Besides, k and v are divided, clamped and converted: e + 4, 8 and 5 bytes; then one byte is read and written."""
    cost, written = eager_kv_cost(w), 2 * w.tokens * w.kv_heads * w.head_dim
    return Cost(cost.flops + 2 * written, cost.bytes - 2 * _saved(w) + written * (DTYPE_BYTES[w.dtype] + 17))


ROPE_KV_WRITE_FLOAT8 = Ladder(
    name="rope-kv-write-float8",
    title="RoPE and the write into a float8 KV cache",
    workload=KvWrite,
    inputs=_inputs,
    input_bytes=lambda w: 2 * qkv_elements(w) * DTYPE_BYTES[w.dtype],
    cost=_cost,
    reference=_exact,
    compare=CloseCodes(),
    rungs=(
        Rung(
            "eager",
            _eager,
            about="to RoPE's launches come a division, a clamp and a conversion of k and of v",
            moved=_eager_cost,
            memory=lambda w: 6 * q_bytes(w),
            own_reference=_own,
        ),
        compiled_rung(
            _eager_of, memory=q_bytes, own_reference=lambda state, rows: _own(Float8Inputs(*state.arguments), rows)
        ),
        triton_rung(
            "triton",
            _fused,
            "one launch: a turned key is scaled and rounded in registers",
            "rope_kv_write",
            prepare=_where_float8_is,
            memory=q_bytes,
            own_reference=_own,
        ),
    ),
    sizes=kv_sizes(),
)
