"""What it costs to talk: the alpha-beta model of a message, fitted to measured times, and what datasheets promise.

    seconds = alpha + bytes / beta

alpha is paid for every message however short, beta is a rate; at alpha * beta bytes both cost the same. Below it a
message is latency-bound and no faster link helps; above it the link sets the time. Here bytes are those of the tensor
that a rank brings, so the beta of a collective holds how often they travel (`wire_bytes`): an all-reduce of N bytes
among n ranks sends 2 (n - 1) / n N from each (Thakur, Rabenseifner and Gropp 2005, section 4.5).

It loses where one line is not enough: libraries change algorithm with the size, which shows as a bend between the two
ends, and alpha grows with the number of ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

GIGA = 1e9


class AlphaBeta(NamedTuple):
    """alpha in seconds a message, beta in bytes a second (infinity where size costs nothing)."""

    alpha: float
    beta: float

    def seconds(self, size: float) -> float:
        """Of a message of `size` bytes."""
        return self.alpha + size / self.beta

    def latency_share(self, size: float) -> float:
        """The share of its time that a message of `size` bytes would take if it were empty, 0 to 1."""
        whole = self.seconds(size)
        return self.alpha / whole if whole else 0.0

    @property
    def balanced(self) -> float:
        """Bytes at which latency and bandwidth cost the same."""
        return self.alpha * self.beta

    def among(self, ranks: int, measured: int = 2) -> AlphaBeta:
        """An all-reduce's line for `ranks`, from one for `measured` ranks: bytes scale, and alpha is taken as equal."""
        return AlphaBeta(self.alpha, self.beta * travels(measured) / travels(ranks))


class Link(NamedTuple):
    """Bytes a second and direction that a device can send over it, and who says so."""

    name: str
    bandwidth: float
    source: str

    def all_reduce(self, ranks: int, alpha: float) -> AlphaBeta:
        """The best that an all-reduce among `ranks` can do over it, when a message costs `alpha` seconds besides."""
        return AlphaBeta(alpha, self.bandwidth / travels(ranks))


def _link(name: str, gigabytes: float, source: str) -> Link:
    return Link(name, gigabytes * GIGA, source)


LINKS: dict[str, Link] = {
    link.name: link
    for link in (
        _link("NVLink 5", 900, "NVIDIA, Blackwell architecture brief: 1.8 TB/s in both directions"),
        _link("NVLink 4", 450, "NVIDIA, H100 and H200 datasheets: 900 GB/s in both directions"),
        _link("NVLink 3", 300, "NVIDIA, A100 datasheet: 600 GB/s in both directions"),
        _link("PCIe 5.0 x16", 63, "PCI-SIG: 32 GT/s, 16 lanes, 128b/130b"),
        _link("PCIe 4.0 x16", 31.5, "PCI-SIG: 16 GT/s, 16 lanes, 128b/130b"),
        _link("InfiniBand NDR", 50, "IBTA roadmap: 400 Gb/s a port of 4 lanes"),
        _link("InfiniBand HDR", 25, "IBTA roadmap: 200 Gb/s a port of 4 lanes"),
        _link("Ethernet 100G", 12.5, "IEEE 802.3ba: 100 Gb/s"),
        _link("Ethernet 10G", 1.25, "IEEE 802.3ae: 10 Gb/s"),
    )
}


OPERATIONS: dict[str, Callable[[int], float]] = {
    "all-reduce": lambda n: 2 * (n - 1) / n,
    "one-shot": lambda n: n - 1,
    "all-gather": lambda n: (n - 1) / n,
    "reduce-scatter": lambda n: (n - 1) / n,
    "send": lambda n: 1,
}
"""How often a tensor's bytes leave one rank of n; a gathered or scattered tensor is the whole one, 'one-shot' is an
all-reduce in which every rank sends all that it has to every other."""


def wire_bytes(operation: str, size: float, ranks: int) -> float:
    """Bytes that one rank sends in an operation on a tensor of `size` bytes.

    Raises ValueError for an operation that is not in OPERATIONS and for fewer than 2 ranks.
    """
    if operation not in OPERATIONS:
        raise ValueError(f"an operation is one of {', '.join(OPERATIONS)}, not {operation!r}")
    if ranks < 2:
        raise ValueError(f"an exchange takes place among 2 ranks at least, not {ranks}")
    return size * OPERATIONS[operation](ranks)


def travels(ranks: int) -> float:
    """How often the bytes of an all-reduce leave a rank: 2 (n - 1) / n. Raises ValueError for fewer than 2 ranks."""
    return wire_bytes("all-reduce", 1.0, ranks)


def fit(sizes: Sequence[float], seconds: Sequence[float]) -> AlphaBeta:
    """The line whose *relative* errors have the least squares, so that every decade of sizes counts alike.

    sizes in bytes, seconds measured; neither constant is negative. Raises ValueError for fewer than two sizes.
    """
    if len(sizes) != len(seconds) or len(set(sizes)) < 2:
        raise ValueError(f"a line needs times of two sizes at least; got {len(seconds)} of {len(set(sizes))} sizes")
    size, took = np.asarray(sizes, float), np.asarray(seconds, float)
    ones, per_byte = 1 / took, size / took
    alpha, inverse = np.linalg.lstsq(np.stack([ones, per_byte], 1), np.ones_like(took), rcond=None)[0]
    if alpha < 0:
        alpha, inverse = 0.0, per_byte.sum() / (per_byte**2).sum()
    elif inverse <= 0:
        alpha, inverse = ones.sum() / (ones**2).sum(), 0.0
    return AlphaBeta(float(alpha), float(1 / inverse) if inverse else float("inf"))


def efficiency(alone: float, ranks: int, communication: float) -> float:
    """T1 / (n Tn) of work of `alone` seconds that n ranks share and for which they talk `communication` seconds."""
    return alone / (alone + ranks * communication)
