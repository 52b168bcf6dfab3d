"""What continuous batching gained over static batching, from records, beside what the lengths allow.

Records of one ladder, machine and setting, over the ratio of the longest to the shortest answer. Invariant: a gain is
of two rungs on one trace, and its bound is of that trace's own lengths.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from labllm.bench import Record
from labllm.serving.gangs import gain_bound
from labllm.serving.ladder import BATCHING, Traffic, traffic
from labllm.serving.simulated_ladder import SIMULATED, Fleet, fleet_trace
from labllm.serving.traces import Trace

RUNGS = ("static", "continuous")
TRACES: Mapping[str, Callable[[Mapping[str, Any]], Trace]] = {
    BATCHING.name: lambda workload: traffic(Traffic(**workload)),
    SIMULATED.name: lambda workload: fleet_trace(Fleet(**workload)),
}


class Gain(NamedTuple):
    """Continuous over static at one ratio of lengths, and the most that the lengths allow."""

    ratio: int
    gain: float
    bound: float

    @property
    def row(self) -> dict[str, object]:
        """As a row of a table."""
        return {"longest / shortest": self.ratio, "gain (x)": self.gain, "bound E[max]/E[len] (x)": self.bound}


def gains(records: Sequence[Record], ladder: str = BATCHING.name) -> list[Gain]:
    """Gains over the ratio, all requests there at the beginning, of the records that `swept` finds."""
    return [_gain(ratio, pair) for ratio, pair in _pairs(records, ladder).items()]


def swept(records: Sequence[Record], ladder: str = BATCHING.name) -> list[Record]:
    """Pairs of static and continuous over the ratio, all requests there at the beginning, in the order of the ratios.

    They are of one setting on one machine: the one with the most ratios, and of equal ones a GPU's.
    """
    return [pair[rung] for pair in _pairs(records, ladder).values() for rung in RUNGS]


def _pairs(records: Sequence[Record], ladder: str) -> dict[int, dict[str, Record]]:
    """By ratio, ascending, the records of RUNGS."""
    settings: dict[tuple[Any, ...], dict[int, dict[str, Record]]] = defaultdict(lambda: defaultdict(dict))
    for r in records:
        if r.ladder == ladder and r.seconds and r.workload["arrivals"] == "at once" and r.rung in RUNGS:
            others = tuple(sorted((name, value) for name, value in r.workload.items() if name != "ratio"))
            settings[r.host.kind == "cuda", r.host.name, others][r.workload["ratio"]][r.rung] = r
    whole = [
        (len(pairs), gpu, pairs)
        for (gpu, *_), by_ratio in settings.items()
        if (pairs := {ratio: pair for ratio, pair in sorted(by_ratio.items()) if len(pair) == len(RUNGS)})
    ]
    _, _, best = max(whole, key=lambda found: found[:2], default=(0, False, {}))
    return best


def _gain(ratio: int, pair: Mapping[str, Record]) -> Gain:
    static, continuous = pair["static"], pair["continuous"]
    lengths = [r.max_tokens for r in TRACES[static.ladder](static.workload)]
    ratio_of_times = (static.seconds or 0.0) / (continuous.seconds or 1.0)
    return Gain(ratio, ratio_of_times, gain_bound(lengths, static.workload["max_num_seqs"]))
