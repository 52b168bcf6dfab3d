"""The ladders of horizontal fusion: every rung right, the packed layout, and bytes by hand."""

from __future__ import annotations

import dataclasses

import pytest
import torch
import torch.nn.functional as F

from labllm.bench import KernelClock, Ladder, label, measure
from labllm.fusion.gate_up_ladder import GATE_UP_PROJECTION, GateUp
from labllm.fusion.qkv_ladder import QKV_PROJECTION, QkvProjection
from labllm.hardware import triton_mode
from labllm.ladders import ladder

QKV, GATE_UP = (
    dataclasses.replace(one, clock=KernelClock(budget=0, most=1)) for one in (QKV_PROJECTION, GATE_UP_PROJECTION)
)
runs_triton = triton_mode("cpu") == "interpreted"
WORKLOADS = [
    *(
        (QKV, QkvProjection(t, h, q, k, d))
        for t, h, q, k, d in [(1, 64, 4, 2, 64), (7, 100, 6, 3, 80), (5, 33, 2, 2, 2)]
    ),
    *((GATE_UP, GateUp(t, h, i)) for t, h, i in [(1, 64, 256), (7, 100, 65), (300, 33, 24)]),
]


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize(("one", "workload"), WORKLOADS, ids=lambda x: getattr(x, "name", None) or label(x))
def test_every_rung_is_right(one: Ladder, workload: QkvProjection | GateUp, dtype: str) -> None:
    names = [r.name for r in one.rungs if r.name != "torch.compile" and (runs_triton or "triton" not in r.needs)]
    records = measure(one.only(*names), dataclasses.replace(workload, dtype=dtype), device="cpu")
    states = {r.rung: (r.status, r.reason) for r in records}
    assert {status for status, _ in states.values()} == {"ok"}, states


@pytest.mark.slow
@pytest.mark.parametrize("one", [QKV, GATE_UP], ids=lambda one: one.name)
def test_the_compilers_rungs_are_right(one: Ladder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LABLLM_FAST", raising=False)
    workload = QkvProjection(7, 64, 4, 2, 64, "float32") if one is QKV else GateUp(7, 64, 100, "float32")
    (record,) = measure(one.only("torch.compile"), workload, device="cpu")
    assert record.status == "ok" or record.reason.startswith("torch.compile cannot compile here"), record.reason


def test_rows_of_the_packed_weight_are_q_then_k_then_v() -> None:
    i = QKV.inputs(QkvProjection(3, 32, 4, 2, 8, "float32"), "cpu", 0)
    q, k, v = QKV.reference(i, None)
    x, w = i.x.double(), i.weight.double()
    assert torch.allclose(q[0], F.linear(x, w[:32])[0]), "position 0 turns nothing"
    assert torch.allclose(k[i.slot_mapping[0]], F.linear(x, w[32:48])[0])
    assert torch.allclose(v[i.slot_mapping], F.linear(x, w[48:]))


def test_bytes_of_qkv_by_hand() -> None:
    w, e = QkvProjection(8, 4096, 32, 8, 128, "bfloat16"), 2
    x, weight, out, angles = 8 * 4096 * e, 4096 * 6144 * e, 8 * 6144 * e, 8 * (512 + 16)
    assert QKV.cost(w).bytes == x + weight + out + angles
    assert QKV.cost(w).flops == 2 * 8 * 4096 * 6144 + 3 * 8 * 40 * 128
    assert QKV["one GEMM, one launch"].moved(w).bytes == x + weight + 3 * out + angles
    assert QKV["three GEMMs, one launch"].moved(w).bytes == 3 * x + weight + 3 * out + angles


def test_bytes_of_gate_up_by_hand() -> None:
    w, e = GateUp(8, 4096, 14336, "bfloat16"), 2
    x, weight, out = 8 * 4096 * e, 2 * 4096 * 14336 * e, 8 * 14336 * e
    assert GATE_UP.cost(w).bytes == x + weight + out
    assert GATE_UP["one GEMM, one launch"].moved(w).bytes == x + weight + 5 * out
    assert GATE_UP["two GEMMs"].moved(w).bytes == 2 * x + weight + 7 * out
    assert GATE_UP.input_bytes(w) == x + weight


@pytest.mark.parametrize("name", ["qkv-projection", "gate-up-projection"])
def test_they_are_registered(name: str) -> None:
    assert ladder(name).name == name
