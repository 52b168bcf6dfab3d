"""Every part of a layer answers as its float64 form does, and the parts add up to the model."""

from __future__ import annotations

import dataclasses

import pytest

from labllm.bench import KernelClock, measure
from labllm.models.count import flops_per_token
from labllm.models.parts import MODELS, PARTS, PARTS_OF_A_MODEL, LayerPart, part_cost, times_in_model

QUICK = dataclasses.replace(PARTS, clock=KernelClock(budget=0, most=1))


@pytest.mark.parametrize("part", PARTS_OF_A_MODEL)
@pytest.mark.parametrize(("queries", "batch"), [(1, 1), (1, 4), (128, 1)])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_each_part_is_right(part: str, queries: int, batch: int, dtype: str) -> None:
    (record,) = measure(QUICK, LayerPart(part, 128, queries, batch, "pico", dtype), device="cpu")
    assert record.status == "ok", record.reason


@pytest.mark.parametrize("model", MODELS)
def test_the_parts_make_up_the_model(model: str) -> None:
    steps = [LayerPart(part, 512, 1, 1, model, "bfloat16") for part in PARTS_OF_A_MODEL if part != "norm"]
    assert sum(times_in_model(w) * part_cost(w).flops for w in steps) == flops_per_token(MODELS[model], 512)


def test_half_a_context_is_refused() -> None:
    (record,) = measure(QUICK, LayerPart("attention", 512, 128), device="cpu")
    assert record.status == "cannot run here" and "must be 1 or 512" in record.reason
