"""The ladder of INT4 weights: every rung that runs here answers rightly, and its tiles fit every shape."""

from __future__ import annotations

import dataclasses

import pytest

from labllm.bench import measure
from labllm.hardware import default_device, this_machine
from labllm.ladders import ladder
from labllm.quantization.int4_ladder import INT4
from labllm.quantization.int4_work import SIDES, TOKENS, Int4Linear
from labllm.quantization.kernel_layout import SPLITS
from labllm.quantization.tiles import SMALLEST_SHARED, shared_bytes, tile_for


@pytest.mark.parametrize("workload", INT4.sizes["fast"])
def test_every_rung_answers_or_says_why_not(workload: Int4Linear) -> None:
    records = list(measure(INT4, workload, device=default_device()))
    assert {r.status for r in records} <= {"ok", "cannot run here"}, [(r.rung, r.reason) for r in records]
    by_rung = {r.rung: r for r in records}
    assert by_rung["linear"].status == "ok" and "distance to exact" not in by_rung["linear"].metrics
    assert by_rung["dequantise, then multiply"].metrics["distance to exact"].value == pytest.approx(0.1, abs=0.05)


def test_the_ladder_is_registered() -> None:
    assert ladder("int4-linear") is INT4


def test_int4_weights_are_compulsory_and_16_bits_move_nearly_four_times_as_much() -> None:
    workload = Int4Linear(1, 4096, 4096, 128, "float16")
    assert INT4["linear"].moved(workload).bytes / INT4.cost(workload).bytes == pytest.approx(16 / 4.125, rel=0.01)


@pytest.mark.parametrize("shared", [SMALLEST_SHARED, 227 * 1024])
@pytest.mark.parametrize("zeros", [True, False])
@pytest.mark.parametrize("group_size", [32, 64, 128])
def test_tiles_divide_every_shape_and_fit_the_device(group_size: int, zeros: bool, shared: int) -> None:
    machine = dataclasses.replace(this_machine("cpu"), cores=132, shared_memory=shared)
    for outputs in (*SIDES, 64, 192, 6144, 28672):
        for inputs in SIDES:
            for tokens in TOKENS:
                tile = tile_for(tokens, outputs, inputs, group_size, zeros, machine)
                padded = -(-outputs // 64) * 64
                assert padded % tile.block_n == 0 and inputs % tile.block_k == 0
                assert group_size % tile.block_k == 0 or tile.block_k % group_size == 0
                assert 1 <= tile.split <= SPLITS and shared_bytes(tile) <= shared
