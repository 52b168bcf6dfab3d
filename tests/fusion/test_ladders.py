"""The ladders of vertical fusion: every rung right, bytes by hand, and what cannot run says why."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from labllm.bench import KernelClock, Ladder, case, measure
from labllm.bench.case import Case
from labllm.fusion.gated_ladder import GATED, Gates
from labllm.fusion.norm_ladders import ADD_LAYER_NORM_GELU, ADD_RMS_NORM
from labllm.fusion.rope_ladder import PICO, KvWrite
from labllm.fusion.vertical import Rows
from labllm.hardware import triton_mode
from labllm.ladders import ladder

RUNGS = {
    "add-rms-norm": ("eager", "triton", "triton, in place", "F.rms_norm"),
    "add-layer-norm-gelu": ("eager", "triton"),
    "swiglu": ("eager", "triton"),
}
LADDERS = {
    one.name: dataclasses.replace(one, clock=KernelClock(budget=0, most=1))
    for one in (ADD_RMS_NORM, ADD_LAYER_NORM_GELU, GATED)
}
runs_triton = triton_mode("cpu") == "interpreted"


def workloads(one: Ladder) -> list:
    shapes = (1, 1), (1, 4096), (7, 100), (300, 65)
    plain = [one.workload(rows, hidden, dtype=dtype) for rows, hidden in shapes for dtype in ("float32", "float16")]
    return plain + ([dataclasses.replace(w, activation="gelu") for w in plain] if one.workload is Gates else [])


@pytest.mark.parametrize(("one", "workload"), [(o, w) for o in LADDERS.values() for w in workloads(o)])
def test_every_rung_is_right(one: Ladder, workload: Rows | Gates) -> None:
    names = [name for name in RUNGS[one.name] if runs_triton or not name.startswith("triton")]
    states = {r.rung: (r.status, r.reason) for r in measure(one.only(*names), workload, device="cpu")}
    assert {status for status, _ in states.values()} == {"ok"}, states


@pytest.mark.slow
@pytest.mark.parametrize("one", LADDERS.values(), ids=list(LADDERS))
def test_the_compilers_rung_is_right(one: Ladder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LABLLM_FAST", raising=False)
    (record,) = measure(one.only("torch.compile"), one.workload(33, 100, dtype="float32"), device="cpu")
    assert record.status == "ok" or record.reason.startswith("torch.compile cannot compile here"), record.reason


@pytest.mark.parametrize("one", LADDERS.values(), ids=list(LADDERS))
def test_the_fast_setting_compiles_nothing(one: Ladder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LABLLM_FAST", "1")
    (record,) = measure(one.only("torch.compile"), one.workload(1, 64), device="cpu")
    assert record.status == "cannot run here" and "LABLLM_FAST" in record.reason


@pytest.mark.parametrize(
    ("name", "peers"), [("add-rms-norm", ("flashinfer, in place", "liger")), ("swiglu", ("flashinfer", "liger"))]
)
@pytest.mark.skipif(torch.cuda.is_available(), reason="with a GPU they may be there")
def test_peers_that_are_not_there_say_what_they_need(name: str, peers: tuple[str, ...]) -> None:
    one = LADDERS[name]
    records = list(measure(one.only(*peers), one.workload(1, 64, dtype="float32"), device="cpu"))
    assert len(records) == 2
    assert all(r.status == "cannot run here" and "NVIDIA GPU" in r.reason for r in records)


def test_flashinfer_takes_half_precision_only() -> None:
    for one, name in ((ADD_RMS_NORM, "flashinfer, in place"), (GATED, "flashinfer")):
        assert "float16 and bfloat16" in one[name].refuses(one.workload(1, 64, dtype="float32"))
        assert one[name].refuses(one.workload(1, 64, dtype="bfloat16")) is None


@pytest.mark.parametrize("name", ["rope-kv-write", "qk-norm-rope-kv-write"])
def test_the_interpreter_is_not_asked_for_hours_of_programs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(case, "can", lambda need, device: True)
    few, many = (Case(ladder(name), KvWrite(tokens, 16, *PICO), "cpu", 0, None, None) for tokens in (256, 1024))
    for mode, refused in (("interpreted", True), ("compiled", False)):
        monkeypatch.setattr(case, "triton_mode", lambda device, mode=mode: mode)
        rung = few.ladder["triton"]
        assert not few._impossible(rung) and bool(many._impossible(rung)) is refused


def test_ligers_geglu_is_another_function() -> None:
    assert "tanh" in LADDERS["swiglu"]["liger"].refuses(Gates(1, 64, "gelu"))
    assert LADDERS["swiglu"]["liger"].refuses(Gates(1, 64, "silu")) is None


def test_bytes_of_add_and_rms_norm_by_hand() -> None:
    one, w = LADDERS["add-rms-norm"], Rows(16384, 4096, "bfloat16")
    assert one.cost(w).bytes == 4 * 16384 * 4096 * 2 + 4096 * 2
    assert one["F.rms_norm"].moved(w).bytes == 5 * 16384 * 4096 * 2 + 4096 * 2
    assert one["eager"].moved(w).bytes == pytest.approx(42 / 8 * one.cost(w).bytes, rel=1e-3)
    wide = Rows(16384, 4096, "float32")
    assert one["eager"].moved(wide).bytes == pytest.approx(10 / 4 * one.cost(wide).bytes, rel=1e-3)


def test_bytes_of_the_other_two_by_hand() -> None:
    layer, gated = LADDERS["add-layer-norm-gelu"], LADDERS["swiglu"]
    w, g = Rows(16384, 4096, "bfloat16"), Gates(16384, 4096, "silu", "bfloat16")
    assert layer.cost(w).bytes == 3 * 16384 * 4096 * 2 + 2 * 4096 * 2
    assert gated.cost(g).bytes == 3 * 16384 * 4096 * 2
    assert gated["eager"].moved(g).bytes == 5 * 16384 * 4096 * 2
