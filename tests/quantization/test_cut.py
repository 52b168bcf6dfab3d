"""Parts of quantised weights: dequantised they are the parts of the dequantised whole."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from labllm.quantization.cut import columns_of, rows_of
from labllm.quantization.float8 import float8_weight
from labllm.quantization.module import Weight
from labllm.quantization.rtn import round_to_nearest


def whole() -> Tensor:
    return torch.randn(12, 128, generator=torch.Generator().manual_seed(0))


WEIGHTS = {
    "4 bits, groups": round_to_nearest(whole(), 4, 32, symmetric=False),
    "3 bits, groups": round_to_nearest(whole(), 3, 32, symmetric=True),
    "8 bits, a scale a row": round_to_nearest(whole(), 8, "channel", symmetric=True),
    "8 bits, one scale": round_to_nearest(whole(), 8, "tensor", symmetric=False),
    "float8, a scale a row": float8_weight(whole(), "channel"),
    "float8, one scale": float8_weight(whole(), "tensor"),
}


@pytest.mark.parametrize("weight", WEIGHTS.values(), ids=WEIGHTS)
def test_parts_are_those_of_the_whole(weight: Weight) -> None:
    exact = weight.dequantize()
    for rows in (range(0, 5), range(5, 12)):
        assert torch.equal(rows_of(weight, rows).dequantize(), exact[rows.start : rows.stop])
    for columns in (range(0, 64), range(64, 128), range(32, 96)):
        part = columns_of(weight, columns)
        assert part.shape == (12, len(columns))
        assert torch.equal(part.dequantize(), exact[:, columns.start : columns.stop])


def test_what_cannot_be_cut() -> None:
    weight = WEIGHTS["4 bits, groups"]
    with pytest.raises(ValueError, match="goes through groups of 32"):
        columns_of(weight, range(16, 80))
    with pytest.raises(ValueError, match="act-order"):
        columns_of(replace(weight, order=torch.arange(128, dtype=torch.int32)), range(0, 64))
