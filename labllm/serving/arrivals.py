"""When requests come and how long they are: seeded numbers, one rule a function.

Users who do not know of one another arrive as a Poisson process: gaps are exponential, whatever came before. Real
traffic is burstier; gaps of a gamma distribution with a larger coefficient of variation (standard deviation over mean)
give the same rate in clumps. Lengths have a long tail in chat logs (lognormal); short questions and long documents make
two humps (bimodal). A generator comes in, an array goes out, so a seed says everything.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

Numbers = Callable[[Generator, int], NDArray]


def at_once() -> Numbers:
    """All arrive at second 0."""
    return lambda generator, count: np.zeros(count)


def poisson(rate: float) -> Numbers:
    """`rate` arrivals a second on average. Raises ValueError where it is not positive."""
    return bursty(rate, 1.0)


def bursty(rate: float, variation: float) -> Numbers:
    """`rate` arrivals a second whose gaps have this coefficient of variation: 1 is Poisson, more is clumps.

    Raises ValueError where a number is not positive.
    """
    if not (0 < rate < math.inf and 0 < variation < math.inf):
        raise ValueError(f"Arrivals need a positive rate and variation; got {rate} and {variation}.")
    shape = variation**-2
    return lambda generator, count: generator.gamma(shape, 1 / (rate * shape), count).cumsum()


ARRIVALS: dict[str, Callable[[float], Numbers]] = {
    "at once": lambda rate: at_once(),
    "Poisson": poisson,
    "bursty": lambda rate: bursty(rate, 3.0),
}


def fixed(length: int) -> Numbers:
    """Every length is the same. Raises ValueError below one token."""
    return uniform(length, length)


def uniform(shortest: int, longest: int) -> Numbers:
    """All lengths from shortest to longest are equally likely. Raises ValueError where these are no such bounds."""
    if not 1 <= shortest <= longest:
        raise ValueError(f"Lengths need 1 <= shortest <= longest; got {shortest} and {longest}.")
    return lambda generator, count: generator.integers(shortest, longest, count, endpoint=True)


def bimodal(short: int, long: int, share_long: float) -> Numbers:
    """A share of lengths is `long`, the others are `short`. Raises ValueError for lengths below 1 and no share."""
    if min(short, long) < 1 or not 0 <= share_long <= 1:
        raise ValueError(f"Two lengths and the share of the second are needed; got {short}, {long}, {share_long}.")
    return lambda generator, count: np.where(generator.random(count) < share_long, long, short)


def lognormal(average: float, variation: float, longest: int) -> Numbers:
    """Lengths with this mean and coefficient of variation before they are cut to 1 .. longest.

    Raises ValueError for a mean outside these bounds or a negative variation.
    """
    if not 1 <= average <= longest or not 0 <= variation < math.inf:
        raise ValueError(
            f"Lengths need 1 <= average <= longest and variation >= 0; got {average}, {longest}, {variation}."
        )
    sigma = math.sqrt(math.log1p(variation**2))

    def draw(generator: Generator, count: int) -> NDArray:
        drawn = generator.lognormal(math.log(average) - sigma**2 / 2, sigma, count)
        return np.clip(drawn.round(), 1, longest).astype(int)

    return draw
