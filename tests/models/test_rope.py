"""RoPE: what it leaves alone, and that Llama 3's stretch does what its definition says."""

from __future__ import annotations

import math

import pytest
import torch

from labllm.models.rope import Angles, Llama3Scaling, RopeConfig, frequencies, rope_table, rotate

SCALING = Llama3Scaling(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=64)


def turned(x: torch.Tensor, positions: list[int]) -> torch.Tensor:
    cos, sin = rope_table(x.shape[-1], 64, RopeConfig())[positions].unsqueeze(1).chunk(2, dim=-1)
    return rotate(x, cos, sin)


def test_scores_depend_on_distance_only_and_norms_stay() -> None:
    q, k = torch.randn(2, 3, 2, 16).unbind()
    near = (turned(q, [5, 9, 40]) * turned(k, [2, 9, 30])).sum(-1)
    far = (turned(q, [23, 20, 50]) * turned(k, [20, 20, 40])).sum(-1)
    torch.testing.assert_close(near, far)
    torch.testing.assert_close(turned(q, [5, 9, 40]).norm(dim=-1), q.norm(dim=-1))
    assert torch.equal(turned(q, [0, 0, 0]), q)


def test_llama3_keeps_fast_pairs_stretches_slow_ones_and_blends_between() -> None:
    plain = frequencies(64, RopeConfig())
    ratio = frequencies(64, RopeConfig(scaling=SCALING)) / plain
    wavelength = 2 * math.pi / plain
    assert torch.equal(ratio[wavelength < 16], torch.ones_like(ratio[wavelength < 16]))
    torch.testing.assert_close(ratio[wavelength > 64], torch.full_like(ratio[wavelength > 64], 1 / 8))
    between = ratio[(wavelength > 16) & (wavelength < 64)]
    assert len(between) > 2 and (between.diff() < 0).all() and between.max() < 1 and between.min() > 1 / 8


@pytest.mark.parametrize("rope", [RopeConfig(), RopeConfig(5e5, SCALING)])
def test_config_round_trip(rope: RopeConfig) -> None:
    assert RopeConfig.from_hf({"rope_parameters": rope.to_hf()}) == rope


@pytest.mark.parametrize("heads", [1, 3])
def test_a_roll_rotates_as_the_formula_does(heads: int) -> None:
    positions = torch.tensor([0, 1, 7, 63])
    angles = Angles.of(rope_table(6, 64, RopeConfig()), positions, torch.float32)
    x = torch.randn(4, heads, 6)
    torch.testing.assert_close(angles.rotate(x), rotate(x, angles.cos, angles.sin))
