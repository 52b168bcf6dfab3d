"""The exercises of lab 07 ask for what the quantization room does, and two of them make a rung or a whole GPTQ."""

from __future__ import annotations

import torch

from labllm.bench import measure
from labllm.labs.exercises import quantize_group as grouping
from labllm.labs.registry import exercises, get, solution_function
from labllm.models.quantization_ladder import QUANTIZATION, Rounded
from labllm.quantization.gptq import gptq, inverse_factor
from labllm.quantization.inputs import InputStatistics
from labllm.quantization.rtn import grid_of, round_to_nearest


def test_lab_07_has_its_three_exercises():
    assert sorted(e.name for e in exercises(7)) == ["awq_search", "gptq_column", "quantize_group"]


def test_quantize_group_is_rounding_to_nearest():
    weight = torch.randn(6, 64)
    codes, _, zero = solution_function("quantize_group")(weight.reshape(-1, 32), 4)
    stored = round_to_nearest(weight, 4, 32, scale_dtype=torch.float32)
    assert torch.equal(codes.reshape(6, 64).to(torch.uint8), stored.codes())
    assert torch.equal(zero.reshape(6, 2).to(torch.uint8), stored.zeros)


def test_a_learner_s_groups_climb_the_ladder():
    ladder = QUANTIZATION.only("rounding").extended(grouping.as_rung(solution_function("quantize_group")))
    theirs, mine = measure(ladder, Rounded(4, "group 64", 512, calibration=1024), device="cpu")
    assert mine.status == "ok", mine.reason
    assert abs(mine.metrics["perplexity"].value / theirs.metrics["perplexity"].value - 1) < 0.05
    assert mine.metrics["bits a weight"].value == 4 + (32 + 8) / 64


def test_columns_one_after_another_are_gptq():
    x = torch.randn(300, 32) @ torch.randn(32, 32)
    weight, inputs = torch.randn(8, 32), InputStatistics(32)
    inputs.add(x)
    factor, _ = inverse_factor(inputs)
    grid = grid_of(weight, 4, symmetric=False)
    left, done = weight, []
    for j in range(32):
        rounded, left = solution_function("gptq_column")(left, factor[j, j:], grid.scale, grid.zero)
        done.append(rounded)
    whole, _ = gptq(weight, inputs, 4, "channel", act_order=False, scale_dtype=torch.float32)
    assert torch.isclose(torch.stack(done, 1), whole.dequantize(), atol=1e-4).double().mean() > 0.99


def test_the_search_is_worth_its_while():
    weight, x, rounded = get("awq_search").arguments(get("awq_search").cases[0])
    alpha, scales = solution_function("awq_search")(weight, x, rounded)
    assert alpha > 0
    assert ((rounded(weight * scales) / scales - weight) @ x.T).norm() < ((rounded(weight) - weight) @ x.T).norm()
