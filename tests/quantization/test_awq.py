"""AWQ and SmoothQuant: scales that help where inputs differ, the formula's fixed points, clipping that never harms."""

from __future__ import annotations

import pytest
import torch

from labllm.quantization.awq import ALPHAS, awq_scales, clipped, nearest, search_scales
from labllm.quantization.inputs import InputStatistics
from labllm.quantization.rtn import round_to_nearest
from labllm.quantization.smooth import smooth_scales

N, K = 32, 128


def counted(outliers: bool, seed: int = 0) -> InputStatistics:
    """Inputs of one size, or with three that are thirty times as large as the others."""
    x = torch.randn(300, K, generator=torch.Generator().manual_seed(seed))
    if outliers:
        x[:, [7, 40, 99]] *= 30
    statistics = InputStatistics(K)
    statistics.add(x)
    return statistics


def drawn(seed: int = 1) -> torch.Tensor:
    return torch.randn(N, K, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("granularity", ["tensor", "channel", 64])
def test_nearest_is_rounding_to_nearest(granularity: int | str):
    stored = round_to_nearest(drawn(), 4, granularity, scale_dtype=torch.float32)
    assert torch.allclose(nearest(drawn(), 4, granularity), stored.dequantize(), atol=1e-6)


def test_alpha_zero_changes_nothing_and_scales_are_centred():
    mean_abs = torch.rand(K) + 0.1
    assert torch.equal(awq_scales(mean_abs, 0.0), torch.ones(K))
    scales = awq_scales(mean_abs, 0.5)
    assert (scales.max() * scales.min()).item() == pytest.approx(1.0, rel=1e-5)
    assert torch.equal(scales.argsort(), mean_abs.argsort())


def test_outliers_call_for_scaling_and_it_pays():
    statistics, weights = counted(outliers=True), [drawn(1), drawn(2)]
    search = search_scales(weights, statistics, 4, 64)
    errors = dict(search.errors)
    assert [alpha for alpha, _ in search.errors] == list(ALPHAS) and search.alpha > 0.1
    assert errors[search.alpha] == min(errors.values()) and errors[search.alpha] < 0.5 * errors[0.0]
    assert torch.equal(search.scales, awq_scales(statistics.mean_abs, search.alpha))


def test_the_search_counts_what_folding_leaves():
    statistics, weight = counted(outliers=True), drawn()
    search = search_scales([weight], statistics, 4, 64)
    left = round_to_nearest(weight * search.scales, 4, 64, scale_dtype=torch.float32).dequantize() / search.scales
    x = torch.linalg.cholesky(statistics.hessian).T
    assert dict(search.errors)[search.alpha] == pytest.approx((x @ (left - weight).T).square().sum().item(), rel=1e-3)


def test_equal_inputs_call_for_little():
    statistics = counted(outliers=False)
    errors = dict(search_scales([drawn()], statistics, 4, 64).errors)
    assert min(errors.values()) > 0.8 * errors[0.0]


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("granularity", ["tensor", "channel", 64])
@pytest.mark.parametrize("bits", [3, 4])
def test_clipping_pays_where_few_weights_are_large(bits: int, granularity: int | str, symmetric: bool):
    statistics = counted(outliers=False)
    weight = drawn()
    plain = statistics.error(weight, round_to_nearest(weight, bits, granularity, symmetric).dequantize())
    assert (
        statistics.error(weight, clipped(weight, statistics, bits, granularity, symmetric).dequantize()) < 0.98 * plain
    )


def test_what_does_not_pay_is_not_clipped():
    statistics, weight = counted(outliers=False), drawn().sign() * (1 + 0.01 * drawn(3).abs())
    assert torch.equal(clipped(weight, statistics, 4, 64).qweight, round_to_nearest(weight, 4, 64).qweight)


def test_smoothing_leaves_both_sides_with_the_same_largest_value():
    statistics, weights = counted(outliers=True), [drawn(1), drawn(2)]
    scales = smooth_scales(weights, statistics)
    largest = torch.stack([w.abs().amax(0) for w in weights]).amax(0) * scales
    assert torch.allclose(statistics.max_abs / scales, largest, rtol=1e-4)


def test_smoothing_leaves_alone_what_was_never_seen():
    statistics = InputStatistics(K)
    x = torch.ones(4, K)
    x[:, 3] = 0
    statistics.add(x)
    assert smooth_scales([drawn()], statistics)[3] == 1
