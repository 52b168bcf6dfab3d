"""QK-norm, float8 and contiguous caches in the launch of RoPE and KV-cache write."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from labllm.bench import KernelClock, measure
from labllm.cache.contiguous import ContiguousCache
from labllm.fusion import qk_norm_rope_kv_write, rope_kv_write
from labllm.fusion.eager_rope import eager_qk_norm_rope_kv_write, eager_rope_kv_write
from labllm.fusion.qk_norm_ladder import QK_NORM_ROPE_KV_WRITE, QkNormInputs
from labllm.fusion.rope_float8_ladder import FLOAT8, ROPE_KV_WRITE_FLOAT8, Float8Inputs
from labllm.fusion.rope_ladder import ROPE_KV_WRITE, KvWrite
from labllm.hardware import default_device, triton_mode

DEVICE = default_device()
QK_NORM, INTO_FLOAT8 = (
    dataclasses.replace(one, clock=KernelClock(budget=0, most=1))
    for one in (QK_NORM_ROPE_KV_WRITE, ROPE_KV_WRITE_FLOAT8)
)
SHAPES = [(1, 16, 4, 2, 64), (9, 8, 6, 3, 80), (5, 4, 4, 4, 2), (5, 256, 5, 5, 256)]
SMALL = KvWrite(9, 4, 4, 2, 64, "float32")
needs_triton = pytest.mark.skipif(
    triton_mode() in ("absent", "refused"), reason="Triton is not to be had on this platform"
)


def norm_inputs(w: KvWrite = SMALL) -> QkNormInputs:
    return QK_NORM.inputs(w, DEVICE, 0)


def float8_inputs(w: KvWrite = SMALL, device: str = DEVICE) -> Float8Inputs:
    return INTO_FLOAT8.inputs(w, device, 0)


def changed(function: Callable[..., Any], arguments: tuple[Any, ...], **change: Any) -> Any:
    return function(**dict(zip(inspect.signature(function).parameters, arguments, strict=False)) | change)


@pytest.mark.parametrize("dtype", ["float32", "float16", pytest.param("bfloat16", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("shape", SHAPES)
@needs_triton
def test_every_rung_with_qk_norm_is_right(shape: tuple[int, ...], dtype: str) -> None:
    records = measure(QK_NORM.only("eager", "norms apart", "triton"), KvWrite(*shape, dtype), device=DEVICE)
    states = {r.rung: (r.status, r.reason) for r in records}
    assert {status for status, _ in states.values()} == {"ok"}, states


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("shape", [*SHAPES, (300, 32, 4, 4, 2)])
def test_eager_into_float8_is_right_everywhere(shape: tuple[int, ...], dtype: str) -> None:
    (record,) = measure(INTO_FLOAT8.only("eager"), KvWrite(*shape, dtype), device="cpu")
    assert record.status == "ok", record.reason
    assert 5e-3 < record.metrics["distance to exact"].value < 5e-2


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("shape", SHAPES)
def test_the_kernel_into_float8_is_right(shape: tuple[int, ...], dtype: str) -> None:
    (record,) = measure(INTO_FLOAT8.only("triton"), KvWrite(*shape, dtype), device="cuda")
    assert record.status == "ok", record.reason


@pytest.mark.slow
@pytest.mark.parametrize("one", [QK_NORM, INTO_FLOAT8], ids=lambda one: one.name)
def test_the_compilers_rungs_are_right(one, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LABLLM_FAST", raising=False)
    (record,) = measure(one.only("torch.compile"), KvWrite(33, 8, 4, 2, 64, "float16"), device="cpu")
    assert record.status == "ok" or record.reason.startswith("torch.compile cannot compile here"), record.reason


@needs_triton
@pytest.mark.parametrize("heads", [1, 2])
def test_the_kernel_divides_by_the_scale_of_a_head(heads: int) -> None:
    """Into a float32 cache, which any device can write: what float8 adds is the conversion."""
    from labllm.kernels import rope_kv_write as kernel

    i = ROPE_KV_WRITE.inputs(SMALL, DEVICE, 0)
    plain = [cache.clone() for cache in (i.k_cache, i.v_cache)]
    rope_kv_write(*i[:3], *plain, *i[5:])
    scales = [torch.tensor(values, device=DEVICE)[:heads].expand(2) for values in ([0.5, 4.0], [8.0, 0.25])]
    kernel.rope_kv_write(torch.empty_like(i.q), *i, 1, k_scale=scales[0], v_scale=scales[1])
    for mine, whole, scale in zip((i.k_cache, i.v_cache), plain, scales, strict=True):
        want = (whole / scale[:, None]).flatten(0, 1)[i.slot_mapping]
        assert torch.allclose(mine.flatten(0, 1)[i.slot_mapping], want, rtol=1e-6)


@needs_triton
def test_norm_then_turn() -> None:
    i = norm_inputs()
    kv = i.kv
    out = qk_norm_rope_kv_write(*i.arguments)
    kept = kv.k_cache.flatten(0, 1)[kv.slot_mapping].clone()
    q, k = (F.rms_norm(x, (64,), w, i.eps) for x, w in ((kv.q, i.q_weight), (kv.k, i.k_weight)))
    whole = rope_kv_write(q, k, *kv[2:])
    assert torch.allclose(out, whole, atol=1e-5)
    assert torch.allclose(kept, kv.k_cache.flatten(0, 1)[kv.slot_mapping], atol=1e-5)
    assert torch.allclose(eager_qk_norm_rope_kv_write(*i.arguments), out, atol=1e-5)


@needs_triton
def test_a_contiguous_cache_is_a_paged_one_with_a_block_a_sequence() -> None:
    cache = ContiguousCache(num_layers=2, num_seqs=3, max_len=8, num_kv_heads=2, head_dim=64, device=DEVICE)
    i = ROPE_KV_WRITE.inputs(KvWrite(6, 4, 4, 2, 64, "float32"), DEVICE, 0)
    row, position = torch.tensor([[2, 2, 2, 0, 0, 2], [0, 1, 2, 4, 5, 3]], device=DEVICE)
    slots = row * cache.max_len + position
    out = rope_kv_write(*i[:3], cache.k(1), cache.v(1), position, i.cos_sin, slots)
    want = [torch.zeros(3, 8, 2, 64, device=DEVICE) for _ in "kv"]
    assert torch.allclose(out, eager_rope_kv_write(*i[:3], *want, position, i.cos_sin, slots), atol=1e-5)
    assert torch.allclose(cache.k(1), want[0], atol=1e-5) and torch.equal(cache.v(1), want[1])
    assert not cache.k(0).any() and not cache.pool[1, :, -1].any(), "other layers and the padding slot stay"


def test_eager_float8_saturates_and_leaves_other_slots() -> None:
    i = float8_inputs(device="cpu").kv
    k_cache, v_cache = (torch.full((5, 4, 2, 64), 7, dtype=torch.uint8).view(FLOAT8) for _ in "kv")
    scale = torch.tensor(1e-3)
    eager_rope_kv_write(*i[:3], k_cache, v_cache, *i[5:8], scale, scale)
    v = v_cache.flatten(0, 1)
    assert v[i.slot_mapping].float().abs().max() == 448 and not v.float().isnan().any()
    rest = torch.ones(20, dtype=torch.bool)
    rest[i.slot_mapping] = False
    assert bool((v.view(torch.uint8)[rest] == 7).all())


@needs_triton
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda i: {"k_scale": None}, "need k_scale and v_scale, and other caches take none.*without both"),
        (lambda i: {"k_cache": i.kv.k_cache.float()}, "need k_scale and v_scale"),
        (lambda i: {"k_scale": i.k_scale[:1], "v_scale": i.v_scale}, r"both one number or both \[2\].*v_scale \[2\]"),
        (lambda i: {"k_scale": i.k_scale.half()}, r"must be float32.*got k_scale \[2\] torch.float16"),
        (lambda i: {"v_scale": i.v_scale.to("meta")}, "must be on the caches' device"),
    ],
)
def test_what_does_not_fit_float8_is_refused(change, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        changed(rope_kv_write, float8_inputs().arguments, **change(float8_inputs()))


@needs_triton
def test_scales_without_float8_are_refused() -> None:
    i, one = ROPE_KV_WRITE.inputs(SMALL, DEVICE, 0), torch.ones((), device=DEVICE)
    with pytest.raises(ValueError, match=r"got caches of torch.float32 and torch.float32 with both"):
        rope_kv_write(*i, one, one)


@pytest.mark.skipif(triton_mode("cpu") != "interpreted", reason="on this CPU Triton does not run")
def test_the_interpreter_refuses_float8() -> None:
    with pytest.raises(ValueError, match="halves numbers that it rounds up in float8"):
        rope_kv_write(*float8_inputs(device="cpu").arguments)
    (record,) = measure(INTO_FLOAT8.only("triton"), SMALL, device="cpu")
    assert record.status == "cannot run here" and "torch rung" in record.reason


@needs_triton
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda i: {"q_weight": i.q_weight[:8]}, r"q_weight must be \[64\]"),
        (lambda i: {"k_weight": i.k_weight.repeat(2)[::2]}, r"k_weight must be \[64\].*contiguous"),
        (lambda i: {"k_weight": i.k_weight.half()}, "k_weight torch.float16"),
    ],
)
def test_weights_that_do_not_fit_are_refused(change, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        changed(qk_norm_rope_kv_write, norm_inputs().arguments, **change(norm_inputs()))


def test_bytes_by_hand() -> None:
    w = KvWrite(16384, 16, 32, 8, 128, "bfloat16")
    plain, e = ROPE_KV_WRITE.cost(w).bytes, 2
    assert QK_NORM.cost(w).bytes == plain + 2 * 128 * e
    assert QK_NORM["norms apart"].moved(w).bytes == plain + 2 * 128 * e + 2 * 16384 * 40 * 128 * e
    assert INTO_FLOAT8.cost(w).bytes == plain - 16384 * 16 * 128 + 64
