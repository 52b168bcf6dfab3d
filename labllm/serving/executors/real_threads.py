"""One thread or all, for a model on a CPU: decided by a race, again and again.

Threads that share a matrix product meet at its end, a hundred times a step, and spin while they wait. On quiet cores
sharing pays as soon as a step has some work in it. Where other programs want the cores, the one that is waited for may
not even run, and a step takes many times as long; one thread never waits. Nothing says which of the two it is, and it
changes while a server runs. So now and then a product is run both ways: all threads are used while the slowest of a few
shared products is faster than the usual one of a single thread.

Cost: a hundredth of the time at most, since the next race waits a hundred times as long as the last one took.
Invariant: results are the same up to the order of sums, and torch has as many threads afterwards as before.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median

import torch

WORTH = 25_000_000  # products of a parameter and a token from which on a step is worth sharing
PRODUCTS, WARM_UP = 8, 2
PAUSE, SHARE = 1.0, 0.01  # seconds between races at least, and the share of the time that they may take


class Threads:
    """How many threads a step takes, for a model of `parameters` weights whose largest product is `product()`."""

    def __init__(self, parameters: int, product: Callable[[], object]) -> None:
        self._parameters, self._product = parameters, product
        self._shares, self._next = False, 0.0

    @contextmanager
    def step(self, num_tokens: int) -> Iterator[None]:
        """A step of num_tokens tokens computes in here, with one of torch's threads or with all of them."""
        most = torch.get_num_threads()
        alone = most > 1 and not (num_tokens * self._parameters >= WORTH and self._sharing_pays(most))
        if alone:
            torch.set_num_threads(1)
        try:
            yield
        finally:
            if alone:
                torch.set_num_threads(most)

    def _sharing_pays(self, most: int) -> bool:
        begun = time.perf_counter()
        if begun >= self._next:
            self._shares = sharing_pays(self._product, most)
            ended = time.perf_counter()
            self._next = ended + max(PAUSE, (ended - begun) / SHARE)
        return self._shares


def sharing_pays(product: Callable[[], object], most: int) -> bool:
    """Whether the slowest of a few calls of `product` by `most` threads is faster than the usual one by one thread."""
    before = torch.get_num_threads()
    try:
        alone, together = (_seconds(product, count) for count in (1, most))
    finally:
        torch.set_num_threads(before)
    return max(together) < median(alone)


def _seconds(product: Callable[[], object], threads: int) -> list[float]:
    torch.set_num_threads(threads)
    stamps = [time.perf_counter()]
    for _ in range(WARM_UP + PRODUCTS):
        product()
        stamps.append(time.perf_counter())
    return [end - start for start, end in zip(stamps[WARM_UP:-1], stamps[WARM_UP + 1 :], strict=True)]


def product_with(weight: torch.Tensor) -> Callable[[], object]:
    """The product of sixteen rows and `weight` [N, K], to race with."""
    x = torch.ones(16, weight.shape[1], dtype=weight.dtype, device=weight.device)
    return lambda: torch.nn.functional.linear(x, weight)


def threads_of(model: torch.nn.Module) -> Threads:
    """For `model`, with the product of its largest matrix; the first race is run here and not in a request's time."""
    weights = list(model.parameters())
    largest = max((w for w in weights if w.dim() == 2), key=torch.Tensor.numel)
    threads = Threads(sum(w.numel() for w in weights), product_with(largest))
    with threads.step(WORTH):
        return threads
