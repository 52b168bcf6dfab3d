"""The plain solution of `latencies`."""

from __future__ import annotations


def latencies(arrival: float, token_times: list[float]) -> tuple[float, float, float]:
    gaps = [token_times[i + 1] - token_times[i] for i in range(len(token_times) - 1)]
    return token_times[0] - arrival, sum(gaps) / len(gaps), max(gaps)
