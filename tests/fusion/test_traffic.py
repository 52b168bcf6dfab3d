"""Bytes counted by chains of launches are those that the ladders count by passes."""

from __future__ import annotations

import pytest

from labllm.fusion.gated_ladder import GATED, Gates
from labllm.fusion.norm_ladders import ADD_LAYER_NORM_GELU, ADD_RMS_NORM
from labllm.fusion.traffic import CHAINS, chain_bytes, table
from labllm.fusion.vertical import Rows

BY_NAME = {chain.name: chain for chain in CHAINS}


@pytest.mark.parametrize(
    ("name", "ladder", "unfused", "workload"),
    [
        ("add, RMSNorm", ADD_RMS_NORM, "F.rms_norm", Rows(16, 256, "float32")),
        ("add, LayerNorm, GELU", ADD_LAYER_NORM_GELU, "eager", Rows(7, 768, "float16")),
        ("SiLU, product", GATED, "eager", Gates(5, 1024, "silu", "float16")),
    ],
)
def test_a_chain_counts_what_its_ladder_counts(name, ladder, unfused, workload):
    element = {"float32": 4, "float16": 2}[workload.dtype]
    before, after = BY_NAME[name].bytes(workload.rows, workload.hidden, element)
    assert before == ladder[unfused].moved(workload).bytes
    assert after == ladder.cost(workload).bytes


def test_an_intermediate_that_is_kept_is_written_and_not_read_again():
    launches = [(["x"], ["y"]), (["y"], ["z"])]
    size = {"x": 1, "y": 10, "z": 100}
    assert chain_bytes(launches, size, ["z"]) == (1 + 10 + 10 + 100, 1 + 100)
    assert chain_bytes(launches, size, ["y", "z"]) == (121, 1 + 10 + 100)


def test_an_input_of_two_launches_is_read_once():
    assert chain_bytes([(["x"], ["y"]), (["x", "y"], ["z"])], {"x": 5, "y": 5, "z": 5}, ["z"]) == (25, 10)


def test_keeping_what_nobody_writes_is_refused():
    with pytest.raises(ValueError, match="'w' is kept and no launch writes it; they write y"):
        chain_bytes([(["x"], ["y"])], {"x": 1, "y": 1}, ["w"])


def test_the_table_promises_what_passes_promise():
    rows = {row["chain"]: row for row in table(1000, 1000, element=2)}
    assert rows["SiLU, product"]["promise (times as fast)"] == pytest.approx(5 / 3)
    assert rows["add, LayerNorm, GELU"]["before (MB)"] == pytest.approx(14, rel=1e-3)
    assert rows["add, LayerNorm, GELU"]["launches"] == 3
