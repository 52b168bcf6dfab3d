"""The plain solution of `int4_gain`."""

from __future__ import annotations


def int4_gain(tokens: int, outputs: int, inputs: int, group_size: int, peak: float, bandwidth: float) -> float:
    weights, activations = outputs * inputs, 2 * tokens * (inputs + outputs)

    def seconds(weight_bytes: float) -> float:
        return max(2 * tokens * weights / peak, (weight_bytes + activations) / bandwidth)

    return seconds(2 * weights) / seconds(weights / 2 + 2 * weights / group_size)
