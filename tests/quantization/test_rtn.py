"""Round to nearest: the nearest of the grid's values, the error that theory allows, groups that confine an outlier."""

from __future__ import annotations

import pytest
import torch

from labllm.bench import relative_error
from labllm.quantization.rtn import grid_of, group_of, round_to_nearest

GRANULARITIES = ("tensor", "channel", 128, 64, 32)


def drawn(rows: int = 48, inputs: int = 256, seed: int = 0) -> torch.Tensor:
    return torch.randn(rows, inputs, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("bits", [8, 4, 3])
@pytest.mark.parametrize("granularity", GRANULARITIES)
def test_every_weight_goes_to_the_nearest_value_of_its_grid(granularity: int | str, bits: int, symmetric: bool):
    weight = drawn(8)
    result = round_to_nearest(weight, bits, granularity, symmetric, torch.float32)
    scales = result.scales.repeat_interleave(result.group_size, 1).expand_as(weight)
    zeros = 2 ** (bits - 1) if symmetric else result.zeros.repeat_interleave(result.group_size, 1).expand_as(weight)
    grid = (torch.arange(2**bits) - torch.as_tensor(zeros)[..., None]) * scales[..., None]
    best = (weight[..., None] - grid).abs().amin(-1)
    gap = (weight - result.dequantize()).abs()
    assert torch.allclose(gap, best, atol=1e-5)
    assert (gap <= scales * (0.501 if symmetric else 1.001)).all(), "half a step, and half more for a rounded zero"


@pytest.mark.parametrize("bits", [8, 4, 3])
def test_finer_groups_are_nearer(bits: int):
    errors = [relative_error(round_to_nearest(drawn(), bits, g).dequantize(), drawn()) for g in GRANULARITIES]
    assert errors == sorted(errors, reverse=True) and errors[0] > 1.2 * errors[-1]


def test_an_outlier_coarsens_its_own_group_alone():
    weight = drawn()
    spoiled = weight.clone()
    spoiled[3, 70] = 100.0
    gap = (round_to_nearest(spoiled, 4, 64).dequantize() - round_to_nearest(weight, 4, 64).dequantize()).abs()
    touched = gap > 0
    assert touched[3, 64:128].sum() > 32
    touched[3, 64:128] = False
    assert not touched.any()


def test_asymmetric_uses_all_codes_of_a_lopsided_group():
    weight = drawn().abs()
    lopsided = [relative_error(round_to_nearest(weight, 4, 64, s).dequantize(), weight) for s in (True, False)]
    assert lopsided[1] < 0.6 * lopsided[0]
    assert (round_to_nearest(weight, 4, 64).zeros == 0).all()


def test_zero_stays_exact():
    weight = drawn()
    weight[0], weight[1, ::2] = 0.0, 0.0
    for symmetric in (True, False):
        out = round_to_nearest(weight, 4, 64, symmetric).dequantize()
        assert (out[weight == 0] == 0).all() and torch.isfinite(out).all()


def test_a_constant_group_is_kept():
    weight = torch.full((2, 64), -0.75)
    assert torch.allclose(round_to_nearest(weight, 4, 64).dequantize(), weight, rtol=1e-3)


def test_the_grid_is_made_of_the_scales_that_are_stored():
    grid = grid_of(drawn().unflatten(1, (-1, 64)), 4, symmetric=False, dtype=torch.float16)
    assert torch.equal(grid.scale, grid.scale.half().float())


@pytest.mark.parametrize(
    ("weight", "granularity", "sentence"),
    [
        (torch.ones(4, 256), 48, "256 inputs cannot be cut into groups of 48"),
        (torch.ones(4, 256), "row", "groups of 'row'; give a divisor such as 32, 64 or 128, or 'channel' or 'tensor'"),
        (torch.ones(256), 64, r"floating-point \[N, K\]; got torch.float32 \[256\]"),
        (torch.ones(4, 256, dtype=torch.int8), 64, "got torch.int8"),
    ],
)
def test_what_cannot_be_cut_is_refused(weight: torch.Tensor, granularity: int | str, sentence: str):
    with pytest.raises(ValueError, match=sentence):
        group_of(weight, granularity)
