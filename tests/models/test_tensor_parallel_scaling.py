"""The efficiency of tensor parallelism by formula: ends that are known, and what a link can and cannot change."""

from __future__ import annotations

import pytest

from labllm.bench import Record, Roof
from labllm.bench.record import Host, Spread, Work
from labllm.devices import KNOWN
from labllm.models.bound import step_bound
from labllm.models.shapes import SHAPES
from labllm.models.tensor_parallel import link_view, scaling_view
from labllm.models.tensor_parallel.measured import Measured
from labllm.models.tensor_parallel.scaling import Scaling, message, predicted, scaled
from labllm.parallel.communication import AlphaBeta

LLAMA = SHAPES["Llama-3.1-8B"]
ROOF = Roof.of_spec(next(spec for spec in KNOWN if spec.name == "H200"))


def record(rung: str, seconds: float, batch: int, queries: int) -> Record:
    nothing = Work(flops=0, bytes=0)
    return Record(
        ladder="tensor-parallel", rung=rung, workload={"batch": batch, "queries": queries}, status="ok", source="",
        compulsory=nothing, moved=nothing, date="2026-01-02", host=Host(name="A", kind="cuda", versions={}),
        time=Spread(median=seconds, p10=seconds, p90=seconds, samples=1),
    )  # fmt: skip


def test_one_token_of_llama_sends_64_messages_of_8_kb():
    found = scaled(LLAMA, 4e-3, 2, 1, "bfloat16", AlphaBeta(11e-6, float("inf")))
    assert message(LLAMA, 1, "bfloat16") == 8192 and found.communication == pytest.approx(64 * 11e-6)
    assert found.seconds == pytest.approx(2e-3 + 64 * 11e-6)
    assert found.speedup == pytest.approx(2 * found.efficiency) and found.share == pytest.approx(0.704 / 2.704)


def test_one_rank_waits_for_nobody():
    alone = scaled(LLAMA, 4e-3, 1, 1, "bfloat16", AlphaBeta(1.0, 1.0))
    assert alone == Scaling(4e-3, 1, 0.0) and alone.efficiency == alone.speedup == 1 and alone.share == 0


def test_what_is_predicted_starts_from_the_floor_on_the_roof():
    found = predicted(LLAMA, ROOF, "bfloat16", 16, 1, 1024, 4, AlphaBeta(5e-6, 1e11))
    assert found.alone == step_bound(LLAMA, ROOF, "bfloat16", 16, 1, 1024).floor()
    assert found.communication == pytest.approx(64 * (5e-6 + 16 * 8192 / 1e11))


def test_a_link_matters_to_many_tokens_and_not_to_one():
    curves = link_view.by_link("Llama-3.1-8B", "H200", "decode", 2, 10e-6)
    fast, slow = curves["NVLink 4"], curves["Ethernet 100G"]
    assert fast[1].efficiency - slow[1].efficiency < 0.02 < 0.3 < fast[512].efficiency - slow[512].efficiency
    more = link_view.by_link("Llama-3.1-8B", "H200", "decode", 2, 50e-6)
    assert more["NVLink 4"][1].efficiency < fast[1].efficiency - 0.2


def test_the_picture_s_sentence_names_both_ends():
    view = link_view.view("Llama-3.1-8B", "H200", "prefill", 8, 10)
    assert view.sentence.startswith("With 128 prompt tokens the efficiency is") and "over NVLink 4" in view.sentence
    assert "with 16,384 prompt tokens" in view.sentence
    assert link_view.view("Llama-3.1-8B", "H200", "decode", 2, 10).sentence.startswith("With 1 sequence the efficiency")


def test_ranks_read_weights_once_and_servers_talk_to_nobody():
    table = scaling_view.against_servers(LLAMA, ROOF, AlphaBeta(10e-6, 270e9))
    decode, prefill = table[1], table[-1]
    assert decode["work"] == "decode, 64 sequences" and prefill["work"] == "prefill, 2 prompts of 8192"
    assert decode["2 ranks (tokens/s)"] > decode["2 servers (tokens/s)"]
    assert prefill["2 ranks (tokens/s)"] < prefill["2 servers (tokens/s)"]
    assert all(row["2 ranks: first (ms)"] < row["2 servers: first (ms)"] for row in table)
    slow = scaling_view.against_servers(LLAMA, ROOF, AlphaBeta(100e-6, 270e9))
    assert slow[0]["2 ranks (tokens/s)"] < slow[0]["2 servers (tokens/s)"]


def test_the_work_a_rank_is_spared_stands_beside_what_its_all_reduces_take():
    workload = {"ranks": 4, "batch": 3, "queries": 1, "model": "Llama-3.1-8B", "dtype": "bfloat16"}
    nothing = record("one GPU", 8e-3, 3, 1)
    step = Measured(workload, "packed", 8e-3, 5e-3, (nothing, nothing))
    (row,) = scaling_view.saved_and_spent([step], AlphaBeta(10e-6, 1e9))
    assert row["work saved (ms)"] == pytest.approx(6) and row["one (ms)"] == 8 and row["4 ranks (ms)"] == 5
    talking = 64 * (0.01 + 3 * 8192 / 1e6)
    assert row["64 all-reduces (ms)"] == pytest.approx(talking)
    assert row["the rest (ms)"] == pytest.approx(5 - 2 - talking)


def test_rungs_stand_side_by_side_by_tokens():
    records = [record("packed", 0.2, 1, 8192), record("packed", 0.03, 1, 512), record("packed", 0.004, 16, 1)]
    table = scaling_view.by_rung([*records, record("sequence parallel", 0.1, 1, 8192)], ["packed", "sequence parallel"])
    assert [row["step"] for row in table] == ["decode, 16 tokens", "prefill, 512 tokens", "prefill, 8k tokens"]
    assert table[-1]["packed (ms)"] == 200 and table[-1]["sequence parallel (ms)"] == 100
    assert table[0]["sequence parallel (ms)"] is None
