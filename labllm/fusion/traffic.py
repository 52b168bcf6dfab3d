"""What fusing a chain of launches saves, counted: bytes before, bytes after, and the launches that disappear.

A launch reads its operands from memory and writes its results there. In one launch only two kinds of traffic are left:
what comes from outside is read once, and what somebody needs later is written once. So

    before = sum over launches of (bytes read + bytes written)
    after  = bytes read from outside, each once + bytes of what is kept, each once

before / after is what fusion gives where memory sets the pace and all launches use it equally well. It says nothing
where arithmetic sets the pace.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Launch = tuple[Sequence[str], Sequence[str]]


def chain_bytes(launches: Sequence[Launch], size: Mapping[str, int], kept: Sequence[str]) -> tuple[int, int]:
    """(before, after) of a chain of (names read, names written); `size` gives bytes, `kept` is needed afterwards.

    Raises ValueError where `kept` names what no launch writes.
    """
    made = {name for _, writes in launches for name in writes}
    if unknown := sorted(set(kept) - made):
        raise ValueError(f"{unknown[0]!r} is kept and no launch writes it; they write {', '.join(sorted(made))}")
    outside = {name for reads, _ in launches for name in reads} - made
    before = sum(size[name] for reads, writes in launches for name in (*reads, *writes))
    return before, sum(size[name] for name in (*outside, *set(kept)))


@dataclass(frozen=True)
class Chain:
    """Launches on matrices [T, H]; names in `vectors` are [H]."""

    name: str
    launches: tuple[Launch, ...]
    kept: tuple[str, ...]
    vectors: tuple[str, ...] = ()

    def bytes(self, rows: int, hidden: int, element: int) -> tuple[int, int]:
        """(before, after) with matrices of [rows, hidden] numbers of `element` bytes."""
        names = {name for reads, writes in self.launches for name in (*reads, *writes)}
        size = {name: element * hidden * (1 if name in self.vectors else rows) for name in names}
        return chain_bytes(self.launches, size, self.kept)


CHAINS = (
    Chain(
        "add, RMSNorm",
        ((("x", "residual"), ("total",)), (("total", "weight"), ("out",))),
        kept=("out", "total"),
        vectors=("weight",),
    ),
    Chain(
        "add, LayerNorm, GELU",
        ((("x", "residual"), ("total",)), (("total", "weight", "bias"), ("norm",)), (("norm",), ("out",))),
        kept=("out",),
        vectors=("weight", "bias"),
    ),
    Chain("SiLU, product", ((("gate",), ("active",)), (("active", "up"), ("out",))), kept=("out",)),
)
"""Element-wise chains of a Transformer as a library's kernels run them, one tuple a launch."""


def table(rows: int, hidden: int, element: int) -> list[dict[str, Any]]:
    """CHAINS at [rows, hidden] numbers of `element` bytes: launches, bytes before and after, and the promise."""
    found = []
    for chain in CHAINS:
        before, after = chain.bytes(rows, hidden, element)
        row = {
            "chain": chain.name,
            "launches": len(chain.launches),
            "before (MB)": before / 1e6,
            "after (MB)": after / 1e6,
        }
        found.append(row | {"promise (times as fast)": before / after})
    return found
