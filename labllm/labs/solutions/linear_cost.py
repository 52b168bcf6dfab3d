"""The plain solution of `linear_cost`."""

from __future__ import annotations


def linear_cost(tokens: int, inputs: int, outputs: int, bytes_per_element: float) -> tuple[float, float]:
    flops = 2 * tokens * inputs * outputs
    elements = tokens * inputs + inputs * outputs + tokens * outputs
    return flops, elements * bytes_per_element
