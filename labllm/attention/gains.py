"""How many times as fast a fused kernel is as the naive rung, by setting and length, from records.

A setting is a workload without its length. Where several kernels are recorded, the one with the most lengths speaks for
a setting, so that a curve is never pieced together from two of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from labllm.bench import Record
from labllm.ui.style import count, times

KERNELS = ("flash", "sdpa[flash]")
Pairs = dict[int, tuple[Record, Record]]


class Gain(NamedTuple):
    """One setting: the baseline's and the kernel's records by length."""

    setting: dict[str, Any]
    kernel: str
    pairs: Pairs

    @property
    def ratios(self) -> dict[int, float]:
        """Time of the baseline over time of the kernel, by length."""
        return {n: slow.time.median / fast.time.median for n, (slow, fast) in self.pairs.items()}

    @property
    def words(self) -> str:
        """The setting: heads and prompts at once."""
        heads, batch = f"{self.setting['q_heads']} heads of {self.setting['head_dim']}", self.setting["batch"]
        return f"{heads}, {batch} prompt{'' if batch == 1 else 's'}"

    @property
    def row(self) -> dict[str, str]:
        """A line of a table."""
        return {"work": self.words, "kernel": self.kernel} | {count(n): times(g) for n, g in self.ratios.items()}


def gains(records: Iterable[Record], baseline: str = "naive", kernels: Sequence[str] = KERNELS) -> list[Gain]:
    """A Gain for each setting at which baseline and kernel share a length; small work first."""
    curves: dict[tuple, dict[int, dict[str, Record]]] = {}
    for r in records:
        if r.seconds and r.rung in (baseline, *kernels):
            setting = tuple((name, value) for name, value in sorted(r.workload.items()) if name != "length")
            curves.setdefault(setting, {}).setdefault(r.workload["length"], {})[r.rung] = r
    found = []
    for setting, curve in curves.items():
        shared = [(_shared(curve, baseline, kernel), kernel) for kernel in kernels]
        pairs, kernel = max(shared, key=lambda item: len(item[0]))
        if pairs:
            found.append(Gain(dict(setting), kernel, pairs))
    return sorted(found, key=lambda g: (g.setting["q_heads"] * g.setting["head_dim"], g.setting["batch"]))


def least(found: Sequence[Gain]) -> str:
    """Where the kernel gains least, in one sentence."""
    all_of_them = [(ratio, n, g) for g in found for n, ratio in g.ratios.items()]
    ratio, length, gain = min(all_of_them, key=lambda item: item[0])
    word = "loses" if ratio < 1 else "gains least"
    return f"{gain.kernel} {word} at {gain.words} of {count(length)} tokens: {times(ratio)} as fast as naive."


def _shared(curve: dict[int, dict[str, Record]], baseline: str, kernel: str) -> Pairs:
    return {n: (at[baseline], at[kernel]) for n, at in sorted(curve.items()) if baseline in at and kernel in at}
