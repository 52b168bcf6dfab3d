"""The plain solution of `tp_efficiency`."""

from __future__ import annotations


def tp_efficiency(
    seconds: float, layers: int, tokens: int, hidden: int, bytes_per_element: int, ranks: int, alpha: float, beta: float
) -> float:
    if ranks == 1:
        return 1.0
    message = tokens * hidden * bytes_per_element
    all_reduce = alpha + 2 * (ranks - 1) / ranks * message / beta
    return seconds / (ranks * (seconds / ranks + 2 * layers * all_reduce))
