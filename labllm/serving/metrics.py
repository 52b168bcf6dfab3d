"""What users and owners of a server feel, computed from timestamps alone.

    arrival          first scheduled     first token    second    ...      last token
      |---- queue time ----|---- prefill ----|--- ITL ---|---  ...  ---------|
      |-------------- TTFT ------------------|---------- (n - 1) TPOT -------|
      |------------------------------ end to end ----------------------------|

TTFT is how long a user stares at nothing, TPOT (time per output token) how fast text then flows; inter-token latencies
(ITL) show the stutter that TPOT averages away. For the owner: throughput, and goodput, the requests a second that kept
a promise (an SLO) on both (Zhong et al., "DistServe", OSDI 2024).

Invariant: queue time <= TTFT <= end to end, and TTFT + (n - 1) TPOT is the time of the last token.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from labllm.serving.breakdown import Breakdown
from labllm.serving.log import StepRecord
from labllm.serving.request import Request


@dataclass(frozen=True)
class RequestMetrics:
    """One request that wrote at least one token, in seconds from its arrival.

    tpot is None where the answer has one token; itl has num_tokens - 1 gaps. num_cached tokens of the prompt came out
    of the prefix cache.
    """

    id: str
    arrival: float
    queue: float
    ttft: float
    tpot: float | None
    itl: tuple[float, ...]
    e2e: float
    num_prompt: int
    num_tokens: int
    num_cached: int
    preemptions: int

    @classmethod
    def of(cls, request: Request) -> RequestMetrics:
        """Raises ValueError where the request has not ended or has written nothing."""
        times = request.token_times
        if request.finish is None or request.first_scheduled is None or not times:
            raise ValueError(f"Request {request.id} has no metrics: it must have ended with at least one token.")
        arrival = request.arrival
        return cls(
            request.id,
            arrival,
            request.first_scheduled - arrival,
            times[0] - arrival,
            (times[-1] - times[0]) / (len(times) - 1) if len(times) > 1 else None,
            tuple(after - before for before, after in pairwise(times)),
            request.finish - arrival,
            request.num_prompt,
            len(times),
            request.num_cached,
            request.preemptions,
        )


@dataclass(frozen=True)
class SLO:
    """A service-level objective: seconds to the first token and between tokens that a user was promised."""

    ttft: float
    tpot: float

    def kept(self, request: RequestMetrics) -> bool:
        """Whether the request met both."""
        return request.ttft <= self.ttft and (request.tpot is None or request.tpot <= self.tpot)


@dataclass(frozen=True)
class RunMetrics:
    """A run: its requests that wrote something, how many wrote nothing or failed, and shares of the engine's capacity.

    seconds     from the first arrival to the last end
    occupancy   share of seat-seconds, max_num_seqs seats, in which a sequence was computed that was still wanted
    kv_use      share of the block-seconds in which a block was held; both None without a log
    decode      where the time of steps of decodes goes
    """

    requests: tuple[RequestMetrics, ...]
    num_failed: int
    seconds: float
    occupancy: float | None = None
    kv_use: float | None = None
    decode: Breakdown | None = None

    @classmethod
    def of(
        cls, requests: Iterable[Request], log: Sequence[StepRecord] = (), max_num_seqs: int = 0, num_blocks: int = 0
    ) -> RunMetrics:
        """Metrics of requests that have ended. Raises ValueError where none of them wrote a token."""
        ended = [request for request in requests if request.finish is not None]
        good = tuple(RequestMetrics.of(r) for r in ended if r.token_times and r.finish_reason in ("stop", "length"))
        if not good:
            raise ValueError("A run needs at least one request that ended with an answer.")
        seconds = max(r.arrival + r.e2e for r in good) - min(r.arrival for r in good)
        occupancy = _share([(s, _wanted(s, ends(good))) for s in log], max_num_seqs)
        kv_use = _share([(s, s.used_blocks) for s in log], num_blocks)
        return cls(good, len(ended) - len(good), seconds, occupancy, kv_use, Breakdown.of(log))

    @property
    def num_tokens(self) -> int:
        """Tokens written."""
        return sum(r.num_tokens for r in self.requests)

    @property
    def throughput(self) -> float:
        """Tokens written a second."""
        return self.num_tokens / self.seconds

    @property
    def preemptions(self) -> int:
        """How often a request lost its place."""
        return sum(r.preemptions for r in self.requests)

    @property
    def prefix_hits(self) -> float:
        """Share of all prompt tokens that were not computed because the prefix cache had them."""
        return sum(r.num_cached for r in self.requests) / sum(r.num_prompt for r in self.requests)

    def goodput(self, slo: SLO) -> float:
        """Requests a second that met the SLO."""
        return sum(map(slo.kept, self.requests)) / self.seconds

    def percentile(self, what: str, share: float) -> float:
        """Of queue, ttft, tpot, itl or e2e: the value that a share of all requests (gaps, for itl) does not exceed.

        Raises ValueError for another name, and where no request has such a value.
        """
        if what not in ("queue", "ttft", "tpot", "itl", "e2e"):
            raise ValueError(f"There is no latency {what!r}; known are queue, ttft, tpot, itl, e2e.")
        found = [getattr(r, what) for r in self.requests]
        found = [gap for gaps in found for gap in gaps] if what == "itl" else [x for x in found if x is not None]
        if not found:
            raise ValueError(f"No answer has a second token, so there is no {what}.")
        return float(np.quantile(found, share, method="inverted_cdf"))

    def named(self) -> dict[str, tuple[float, str]]:
        """The figures that a record keeps, with units."""
        found = {"throughput": (self.throughput, "tokens/s"), "TTFT": (self.percentile("ttft", 0.5), "s")}
        found["TTFT p99"] = (self.percentile("ttft", 0.99), "s")
        if any(r.itl for r in self.requests):
            found |= {"TPOT": (self.percentile("tpot", 0.5), "s"), "ITL p99": (self.percentile("itl", 0.99), "s")}
        if self.occupancy is not None:
            found["occupancy"] = (self.occupancy, "%")
        if self.kv_use is not None:
            found["KV use"] = (self.kv_use, "%")
        if self.preemptions:
            found["preemptions"] = (float(self.preemptions), "requests")
        if self.prefix_hits:
            found["prefix hits"] = (self.prefix_hits, "%")
        if self.decode is not None and self.decode.busy is not None:
            found |= self.decode.named()
        return found


def ends(requests: Iterable[RequestMetrics]) -> dict[str, float]:
    """When each request was over, by id: what a static batch computes for it later, nobody wants."""
    return {r.id: r.arrival + r.e2e for r in requests}


def _wanted(step: StepRecord, over: Mapping[str, float]) -> int:
    return sum(step.start < over.get(request_id, step.start) for request_id, _, _ in step.chunks)


def _share(used: Sequence[tuple[StepRecord, int]], capacity: int) -> float | None:
    """Time-weighted share of `capacity` in use, over the steps; None where nothing was logged."""
    seconds = sum(step.end - step.start for step, _ in used)
    if not seconds or not capacity:
        return None
    return sum((step.end - step.start) * count for step, count in used) / (seconds * capacity)
