"""Statistics of inputs: sums that any cut of the tokens gives, and errors that equal those of the outputs."""

from __future__ import annotations

import pytest
import torch

from labllm.bench import relative_error
from labllm.quantization.inputs import InputStatistics


def test_any_cut_of_the_tokens_gives_the_same():
    x = torch.randn(50, 12)
    whole, cut = InputStatistics(12), InputStatistics(12)
    whole.add(x)
    for piece in (x[:7], x[7:7], x[7:]):
        cut.add(piece)
    assert whole.num_tokens == cut.num_tokens == 50
    assert torch.allclose(whole.hessian, cut.hessian, atol=1e-4) and torch.allclose(whole.mean_abs, cut.mean_abs)
    assert torch.allclose(whole.mean_abs, x.abs().mean(0)) and torch.equal(cut.max_abs, x.abs().amax(0))


def test_the_error_is_that_of_the_outputs():
    x, weight, other = torch.randn(50, 12), torch.randn(5, 12), torch.randn(5, 12)
    statistics = InputStatistics(12)
    statistics.add(x)
    assert statistics.error(weight, other) == pytest.approx(relative_error(x @ other.T, x @ weight.T), rel=1e-4)


def test_dividing_the_statistics_is_dividing_the_inputs():
    x, scales = torch.randn(50, 12), torch.rand(12) + 0.5
    whole, divided = InputStatistics(12), InputStatistics(12)
    whole.add(x)
    divided.add(x / scales)
    other = whole.divided(scales)
    assert other.num_tokens == 50 and torch.allclose(other.hessian, divided.hessian, rtol=1e-4, atol=1e-4)
    assert torch.allclose(other.mean_abs, divided.mean_abs) and torch.allclose(other.max_abs, divided.max_abs)


def test_bad_inputs_are_named():
    statistics = InputStatistics(12)
    with pytest.raises(ValueError, match=r"must be \[T, 12\]; got \[3, 11\]"):
        statistics.add(torch.ones(3, 11))
    with pytest.raises(ValueError, match="must be finite"):
        statistics.add(torch.full((3, 12), float("inf")))
    with pytest.raises(ValueError, match="No calibration token"):
        _ = statistics.mean_abs
