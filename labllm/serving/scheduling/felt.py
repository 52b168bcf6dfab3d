"""What a single user notices of a run, where means and percentiles over all tokens notice nothing.

A prompt of 8192 tokens that is read in one step stops every answer once, for a fraction of a second. Among hundreds of
gaps of an answer that is one, so the 99th percentile of all gaps may miss it; but every user sees it. So the longest
gap is taken for each request first, and percentiles over requests after that.

`read_again` counts what scheduling made a server compute twice: what a preempted request had in the cache.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from labllm.serving.metrics import RequestMetrics
from labllm.serving.replay import Run

Figures = dict[str, tuple[float, str]]


def longest_gaps(run: Run) -> list[float]:
    """Of each request with two tokens or more, the longest time between two of them, in seconds."""
    return [max(request.itl) for request in run.metrics.requests if request.itl]


def read_again(run: Run) -> float:
    """Tokens computed beyond once each, as a share of all; 0 where a prefix cache saves more. Needs the run's log."""
    computed = sum(new for step in run.log for _, _, new in step.chunks)
    return max(0.0, computed / sum(request.num_tokens - 1 for request in run.requests) - 1)


def of(run: Run, what: str, share: float, who: Callable[[RequestMetrics], bool]) -> float:
    """A percentile of a latency (as `RunMetrics.percentile`) among the requests for whom `who` is true.

    Raises ValueError where there is none.
    """
    return quantile((getattr(request, what) for request in run.metrics.requests if who(request)), share)


def quantile(values: Iterable[float], share: float) -> float:
    """The value that a share of all does not exceed. Raises ValueError where there is none."""
    found = list(values)
    if not found:
        raise ValueError("A percentile needs at least one request.")
    return float(np.quantile(found, share, method="inverted_cdf"))


def gap_figures(run: Run) -> Figures:
    """The longest gap of the median request and of the 99th percentile, as a record keeps them."""
    gaps = longest_gaps(run)
    if not gaps:
        return {}
    return {"longest gap": (quantile(gaps, 0.5), "s"), "longest gap p99": (quantile(gaps, 0.99), "s")}
