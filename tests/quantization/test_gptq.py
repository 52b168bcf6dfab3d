"""GPTQ: the factor against least squares solved anew, a better output than rounding, and calibration that fails."""

from __future__ import annotations

import pytest
import torch

from labllm.quantization.gptq import DAMPING, gptq, inverse_factor
from labllm.quantization.inputs import InputStatistics
from labllm.quantization.rtn import grid_of, round_to_nearest

K, N = 64, 24


def inputs(tokens: int = 400, seed: int = 0, correlated: bool = True) -> torch.Tensor:
    """[T, K] with a few strong directions, as activations have."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(tokens, K, generator=generator)
    return x @ torch.randn(K, K, generator=generator) * 0.3 + 0.1 * x if correlated else x


def counted(x: torch.Tensor) -> InputStatistics:
    statistics = InputStatistics(x.shape[1])
    statistics.add(x)
    return statistics


def drawn(seed: int = 1) -> torch.Tensor:
    return torch.randn(N, K, generator=torch.Generator().manual_seed(seed))


def solved_anew(weight: torch.Tensor, hessian: torch.Tensor, bits: int, order: list[int]) -> torch.Tensor:
    """After each rounded column, the best real values of the others by least squares: no factor, no recursion."""
    grid = grid_of(weight, bits, symmetric=False, dtype=torch.float32)
    mean = hessian.diagonal().mean()
    h = hessian.double() + torch.eye(K, dtype=torch.float64) * DAMPING * mean
    current = weight.double().clone()
    for index, column in enumerate(order):
        rest = order[index + 1 :]
        wanted = current[:, column : column + 1]
        rounded = grid.nearest(wanted.float()).double()
        if rest:
            move = torch.linalg.solve(h[rest][:, rest], h[rest][:, [column]] @ (wanted - rounded).T).T
            current[:, rest] += move
        current[:, [column]] = rounded
    return current


@pytest.mark.parametrize("act_order", [False, True])
def test_the_factor_gives_what_least_squares_gives(act_order: bool):
    statistics, weight = counted(inputs()), drawn()
    order = (
        statistics.hessian.diagonal().argsort(descending=True, stable=True).tolist() if act_order else list(range(K))
    )
    expected = solved_anew(weight, statistics.hessian, 4, order)
    result, _ = gptq(weight, statistics, 4, "channel", act_order=act_order, scale_dtype=torch.float32)
    same = torch.isclose(result.dequantize().double(), expected, atol=1e-4).double().mean()
    assert same > 0.99, "a tie between two codes may fall either way"


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("act_order", [False, True])
@pytest.mark.parametrize("granularity", ["tensor", "channel", 32])
@pytest.mark.parametrize("bits", [3, 4, 8])
def test_the_output_is_nearer_than_after_rounding(bits: int, granularity: int | str, act_order: bool, symmetric: bool):
    statistics, weight = counted(inputs()), drawn()
    plain = statistics.error(weight, round_to_nearest(weight, bits, granularity, symmetric).dequantize())
    result, report = gptq(weight, statistics, bits, granularity, symmetric, act_order)
    assert statistics.error(weight, result.dequantize()) < 0.8 * plain
    assert report.warnings == () and result.bits == bits


def test_it_also_helps_on_inputs_that_it_has_not_seen():
    weight, fresh = drawn(), counted(inputs(seed=0)[200:])
    result, _ = gptq(weight, counted(inputs(seed=0)[:200]), 4, 32)
    assert fresh.error(weight, result.dequantize()) < 0.8 * fresh.error(
        weight, round_to_nearest(weight, 4, 32).dequantize()
    )


def test_without_correlation_it_is_rounding_to_nearest():
    statistics = InputStatistics(K)
    statistics.num_tokens = K
    statistics.hessian = torch.diag(torch.rand(K) + 0.5)
    result, _ = gptq(drawn(), statistics, 4, 32)
    assert torch.equal(result.qweight, round_to_nearest(drawn(), 4, 32).qweight)


def test_more_than_one_block_of_columns():
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(600, 320, generator=generator) @ torch.randn(320, 320, generator=generator)
    weight = torch.randn(8, 320, generator=generator)
    statistics = counted(x)
    for act_order in (False, True):
        result, _ = gptq(weight, statistics, 4, 64, act_order=act_order)
        assert statistics.error(weight, result.dequantize()) < 0.7 * statistics.error(
            weight, round_to_nearest(weight, 4, 64).dequantize()
        )


def test_a_dead_input_is_rounded_to_nearest_and_reported():
    x, weight = inputs(), drawn()
    x[:, 5] = 0
    result, report = gptq(weight, counted(x), 4, 32)
    assert report.dead_inputs == 1 and "1 of 64 inputs were zero" in report.warnings[0]
    assert torch.equal(result.dequantize()[:, 5], round_to_nearest(weight, 4, 32).dequantize()[:, 5])


@pytest.mark.parametrize("tokens", [1, 10])
def test_too_few_tokens_are_reported_and_do_no_harm(tokens: int):
    weight, few = drawn(), counted(inputs(tokens))
    result, report = gptq(weight, few, 4, 32)
    assert f"{tokens} calibration tokens cannot determine 64 inputs." in report.warnings
    assert few.error(weight, result.dequantize()) < few.error(weight, round_to_nearest(weight, 4, 32).dequantize())


def test_a_singular_hessian_is_damped_until_it_is_positive():
    statistics = counted(inputs())
    broken = statistics.hessian
    broken[0, 1] = broken[1, 0] = 1.5 * (broken[0, 0] * broken[1, 1]).sqrt()  # no X has such an X^T X
    result, report = gptq(drawn(), statistics, 4, 32)
    assert report.damping > DAMPING and "damping was raised" in report.warnings[0]
    assert torch.isfinite(result.dequantize()).all()


def test_the_factor_is_of_the_inverse():
    statistics = counted(inputs())
    order = torch.randperm(K)
    factor, _ = inverse_factor(statistics, order)
    hessian = statistics.hessian.double()[order][:, order]
    damped = hessian + torch.eye(K, dtype=torch.float64) * DAMPING * hessian.diagonal().mean()
    assert torch.allclose((factor.double().T @ factor.double()) @ damped, torch.eye(K, dtype=torch.float64), atol=1e-4)


def test_calibration_that_says_nothing_is_refused():
    with pytest.raises(ValueError, match="not all zero; run the model over some text"):
        gptq(drawn(), InputStatistics(K), 4, 32)
    with pytest.raises(ValueError, match="not all zero"):
        gptq(drawn(), counted(torch.zeros(4, K)), 4, 32)
    with pytest.raises(ValueError, match="64 inputs, the statistics are of 32"):
        gptq(drawn(), counted(torch.ones(4, 32)), 4, 32)
