"""RoPE and the cache's write in one launch: every token in its slot, nothing anywhere else, and refusals."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from labllm.bench import KernelClock, measure
from labllm.fusion import peers, rope_kv_write
from labllm.fusion.eager_rope import eager_rope_kv_write
from labllm.fusion.rope_ladder import ROPE_KV_WRITE, KvInputs, KvWrite
from labllm.hardware import default_device, triton_mode

pytestmark = pytest.mark.skipif(
    triton_mode() in ("absent", "refused"), reason="Triton is not to be had on this platform"
)
DEVICE = default_device()
LADDER = dataclasses.replace(ROPE_KV_WRITE, clock=KernelClock(budget=0, most=1))
SHAPES = [(1, 16, 4, 2, 64), (33, 8, 6, 3, 80), (19, 16, 8, 1, 96), (17, 32, 4, 4, 2), (5, 256, 5, 5, 256)]


def inputs_of(w: KvWrite) -> KvInputs:
    return LADDER.inputs(w, DEVICE, 0)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.skipif(triton_mode("cpu") != "interpreted", reason="on this CPU Triton does not run")
def test_every_rung_is_right(shape: tuple[int, ...], dtype: str) -> None:
    records = measure(LADDER.only("eager", "triton"), KvWrite(*shape, dtype), device="cpu")
    states = {r.rung: (r.status, r.reason) for r in records}
    assert {status for status, _ in states.values()} == {"ok"}, states


@pytest.mark.slow
def test_the_compilers_rung_is_right(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LABLLM_FAST", raising=False)
    (record,) = measure(LADDER.only("torch.compile"), KvWrite(33, 8, 4, 2, 64, "float32"), device="cpu")
    assert record.status == "ok" or record.reason.startswith("torch.compile cannot compile here"), record.reason


def test_only_the_named_slots_are_written_and_minus_one_is_none() -> None:
    i = inputs_of(KvWrite(6, 4, 4, 2, 64, "float32"))
    whole = rope_kv_write(*i)
    kept = i.k_cache.flatten(0, 1)[i.slot_mapping].clone()
    k_cache, v_cache = (torch.full((5, 4, 2, 64), 7.0, device=DEVICE) for _ in "kv")
    slots = torch.tensor([19, -1, 3, 0, -1, 8], device=DEVICE)
    out = rope_kv_write(*i[:3], k_cache, v_cache, *i[5:7], slots)
    assert torch.equal(out, whole), "queries of padding are turned, and harm nobody"
    for cache, rows in ((k_cache, kept), (v_cache, i.v)):
        flat = cache.flatten(0, 1)
        assert torch.equal(flat[slots[slots >= 0]], rows[slots >= 0])
        untouched = torch.ones(20, dtype=torch.bool, device=DEVICE)
        untouched[slots[slots >= 0]] = False
        assert bool((flat[untouched] == 7).all())


def test_caches_are_taken_by_strides() -> None:
    i = inputs_of(KvWrite(9, 4, 4, 2, 64, "float32"))
    rope_kv_write(*i)
    pool = torch.zeros(2, 3, 2, 4, 64, device=DEVICE)  # one tensor for keys and values, pages head-major
    k_cache, v_cache = (half.transpose(1, 2) for half in pool)
    rope_kv_write(*i._replace(k_cache=k_cache, v_cache=v_cache))
    for mine, plain in ((k_cache, i.k_cache), (v_cache, i.v_cache)):
        assert torch.equal(mine.flatten(0, 1)[i.slot_mapping], plain.flatten(0, 1)[i.slot_mapping])


def test_position_zero_turns_nothing_and_a_turn_keeps_norms() -> None:
    i = inputs_of(KvWrite(9, 4, 4, 2, 64, "float32"))
    out = rope_kv_write(*i)
    assert torch.equal(out[0], i.q[0]) and not torch.allclose(out[8], i.q[8])
    assert torch.allclose(out.norm(dim=-1), i.q.norm(dim=-1), rtol=1e-5)
    assert torch.allclose(eager_rope_kv_write(*i), out, atol=1e-5)


def test_no_tokens_are_no_work() -> None:
    i = inputs_of(KvWrite(4, 4, 4, 2, 64, "float32"))
    empty = [x[:0] for x in i[:3]]
    assert rope_kv_write(*empty, *i[3:5], i.positions[:0], i.cos_sin, i.slot_mapping[:0]).shape == (0, 4, 64)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda i: {"k": i.k[:2]}, r"q must be \[T, Hq, D\]"),
        (lambda i: {"q": i.q[..., :32]}, r"q must be \[T, Hq, D\]"),
        (lambda i: {"v_cache": i.v_cache[:0]}, r"must be \[num_blocks, block_size, 2, 64\]"),
        (lambda i: {"v_cache": i.v_cache.transpose(1, 2).contiguous().transpose(1, 2)}, "must share strides"),
        (lambda i: {"q": i.q.transpose(0, 1).contiguous().transpose(0, 1)}, "of q must lie side by side"),
        (lambda i: {"positions": i.positions.int()}, r"positions must be \[4\] int64"),
        (lambda i: {"slot_mapping": i.slot_mapping[:2]}, r"slot_mapping must be \[4\] int64"),
        (lambda i: {"cos_sin": i.cos_sin.half()}, r"cos_sin must be \[positions, 64\] float32"),
        (lambda i: {"k": i.k.half()}, "share dtype and device"),
        (lambda i: {"positions": i.positions.to("meta")}, "positions on meta"),
    ],
)
def test_what_does_not_fit_is_refused(change, message: str) -> None:
    i = inputs_of(KvWrite(4, 4, 4, 2, 64, "float32"))
    with pytest.raises(ValueError, match=message):
        rope_kv_write(*i._replace(**change(i)))


@pytest.mark.skipif(DEVICE == "cuda", reason="on a GPU values are not looked at")
@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("positions", 4, r"positions must lie in 0 \.\. 3"),
        ("positions", -1, "positions must lie"),
        ("slot_mapping", 4, r"slot_mapping must lie in -1 \.\. 3"),
        ("slot_mapping", -2, "slot_mapping must lie"),
    ],
)
def test_values_out_of_range_are_refused_on_a_cpu(field: str, value: int, message: str) -> None:
    i = inputs_of(KvWrite(4, 4, 4, 2, 64, "float32"))
    getattr(i, field)[1] = value
    with pytest.raises(ValueError, match=message):
        rope_kv_write(*i)


class StandIn:
    """FlashInfer's two functions in plain torch, in its signatures: what our tables mean to it."""

    @staticmethod
    def apply_rope_with_cos_sin_cache_inplace(positions, query, key, head_size, cos_sin_cache):
        for x in (query.view(len(query), -1, head_size), key.view(len(key), -1, head_size)):
            cos, sin = cos_sin_cache[positions][:, None].chunk(2, -1)
            first, second = x.clone().chunk(2, -1)
            x.copy_(torch.cat((first * cos - second * sin, second * cos + first * sin), -1))

    @staticmethod
    def append_paged_kv_cache(append_key, append_value, sequences, places, caches, blocks, bounds, last):
        size = caches[0].shape[1]
        assert bounds.tolist() == [0, len(blocks)] and (len(blocks) - 1) * size + int(last) == len(append_key)
        for token, (sequence, place) in enumerate(zip(sequences.tolist(), places.tolist(), strict=True)):
            block = blocks[bounds[sequence] + place // size]
            caches[0][block, place % size], caches[1][block, place % size] = append_key[token], append_value[token]


@pytest.mark.parametrize("tokens", [1, 16, 37])
def test_the_peers_tables_name_every_tokens_slot(tokens: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "_installed", lambda *_: StandIn)
    peer = dataclasses.replace(LADDER["flashinfer, in place"], needs=(), refuses=lambda w: None)
    one = dataclasses.replace(LADDER, rungs=(peer,))
    (record,) = measure(one, KvWrite(tokens, 8, 4, 2, 64, "float32"), device="cpu")
    assert record.status == "ok", record.reason


def test_bytes_by_hand() -> None:
    w = KvWrite(16384, 16, 32, 8, 128, "bfloat16")
    assert LADDER.cost(w).bytes == 2 * 16384 * 48 * 128 * 2 + 16384 * (512 + 16)
    assert LADDER["eager"].moved(w).bytes == (9 * 40 + 2 * 16) * 16384 * 128 * 2 + 16384 * (512 + 16)
    more = 2 * 16384 * 8 * 128 * 2
    assert LADDER["flashinfer, in place"].moved(w).bytes == LADDER.cost(w).bytes + more
