"""Traces: the lengths of requests, seeded, as small lists.

Real traffic has many short requests and a few very long ones, and no allocator knows beforehand which is which. Three
shapes of it: lognormal (a long tail, as chat logs have), bimodal (short questions and long documents) and uniform.
Only lengths matter to memory, so a trace is nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Request:
    """A sequence that comes with `prompt` tokens and ends after `output` further ones."""

    prompt: int
    output: int

    @property
    def total(self) -> int:
        """Tokens at its end."""
        return self.prompt + self.output


def lognormal_requests(count: int, average: float, spread: float, max_len: int, seed: int = 0) -> list[Request]:
    """Seeded requests of about `average` tokens, half of them prompt, at most `max_len`.

    `spread` is standard deviation over mean before lengths are cut to 2 .. max_len; 0 makes all equal. Raises
    ValueError for a count below one, an average outside 2 .. max_len, or a negative spread.
    """
    _check(count, average, max_len, spread)
    sigma = math.sqrt(math.log1p(spread**2))
    lengths = np.random.default_rng(seed).lognormal(math.log(average) - sigma**2 / 2, sigma, count)
    return _halved(lengths, max_len)


def bimodal_requests(count: int, average: float, max_len: int, seed: int = 0) -> list[Request]:
    """Four in five have about a quarter of the average, the fifth has four times as much; else as `lognormal_requests`.

    Raises ValueError as `lognormal_requests`.
    """
    _check(count, average, max_len)
    generator = np.random.default_rng(seed)
    lengths = average * np.where(generator.random(count) < 0.8, 0.25, 4) * generator.uniform(0.75, 1.25, count)
    return _halved(lengths, max_len)


def uniform_requests(count: int, average: float, max_len: int, seed: int = 0) -> list[Request]:
    """All lengths from 2 to 2 * average - 2 are equally likely; else as `lognormal_requests`.

    Raises ValueError as `lognormal_requests`.
    """
    _check(count, average, max_len)
    return _halved(np.random.default_rng(seed).uniform(2, 2 * average - 2, count), max_len)


TRACES: dict[str, Callable[[int, float, int, int], list[Request]]] = {
    "lognormal": lambda count, average, max_len, seed=0: lognormal_requests(count, average, 1.0, max_len, seed),
    "bimodal": bimodal_requests,
    "uniform": uniform_requests,
}


def _check(count: int, average: float, max_len: int, spread: float = 0) -> None:
    if count < 1 or spread < 0 or not 2 <= average <= max_len:
        raise ValueError(
            "Requests need count >= 1, 2 <= average <= max_len and spread >= 0; "
            f"got {count}, {average} of {max_len} and {spread}."
        )


def _halved(lengths: np.ndarray, max_len: int) -> list[Request]:
    totals = np.clip(lengths.round(), 2, max_len).astype(int).tolist()
    return [Request(total // 2, total - total // 2) for total in totals]
