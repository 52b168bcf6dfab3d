"""Clocks of ranks: all start together, and the slowest counts.

RankClock, for kernels, layers and steps. On GPUs work under a millisecond goes into a CUDA graph over rotated buffers,
as with `KernelClock`; longer work, and whatever is about launches, is timed as calls in a row behind one that is not
timed, as with `SteadyClock`. RankRunClock, for whole runs of seconds, whose last answer is kept.

How often a call is repeated follows from times that all ranks agreed on: were it decided by each, one rank would wait
in a collective that the others never enter. On GPUs a small all-reduce goes before what is timed: it ends on all at
once. Launching a graph with NCCL in it takes the host up to a millisecond, so before that the GPUs are kept busy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from labllm.bench.capture import capture
from labllm.bench.clock import LAUNCH_SHOWS, Keeping, Timing, busy, event_seconds, rotations, wall, warm_up
from labllm.parallel.group import device as own_device

SLOWEST = ", slowest rank"
GRAPHED, WARM, LAUNCHED, WALL = (
    "cuda graph, rotated buffers" + SLOWEST,
    "cuda graph, warm buffers" + SLOWEST,
    "cuda events" + SLOWEST,
    "monotonic clock" + SLOWEST,
)
CPU_ROW, GRAPH_ROW, STEADY_ROW, MOST_CALLS = 2e-3, 6e-3, 2e-2, 100  # a sample is a row of calls of so many seconds
BUSY_BYTES, BUSY_PASSES = 2**29, 24  # some milliseconds


@dataclass(frozen=True)
class RankClock:
    """A `Clock` for rank ladders.

    budget   seconds to spend on one rung; `most` the most samples
    cold     rotate buffers through the L2 cache; False where data are warm in use too, as a layer's output is
    graphed  short calls go into a CUDA graph; False where launches are what the ladder is about
    """

    budget: float = 0.3
    most: int = 50
    cold: bool = True
    graphed: bool = True

    def time(
        self, run: Callable[[Any], Any], make_state: Callable[[int], Any], device: str, *, touched: float
    ) -> Timing:
        """As `Clock.time`; every rank must call it."""
        state = make_state(0)
        run(state)
        if torch.device(device).type != "cuda":
            once = min(slowest(_walled_rows(lambda: run(state), 3)))
            return self._row(run, state, CPU_ROW / once, once, _walled_rows, WALL)
        once = min(slowest(_event_rows(lambda: run(state), 3)))
        if self.graphed and once < LAUNCH_SHOWS:
            made = self._captured(run, make_state, state, once, touched)
            if made is not None:
                graph, calls, kept = made
                ahead = busy(BUSY_BYTES, BUSY_PASSES)
                samples = slowest(_event_rows(graph.replay, self._count(once * calls), ahead))
                del kept
                graph.reset()
                return Timing(tuple(s / calls for s in samples), GRAPHED if self.cold else WARM)
        with_launch = ", with launch" if once < LAUNCH_SHOWS else ""
        return self._row(run, state, STEADY_ROW / once, once, _event_rows, LAUNCHED + with_launch)

    def _row(
        self,
        run: Callable[[Any], Any],
        state: Any,
        calls: float,
        once: float,
        rows: Callable[[Callable[[], Any], int], list[float]],
        method: str,
    ) -> Timing:
        """Samples of about `calls` calls in a row each, taken by `rows`."""
        length = max(1, min(MOST_CALLS, int(calls)))
        samples = slowest(rows(lambda: [run(state) for _ in range(length)], self._count(once * length)))
        return Timing(tuple(s / length for s in samples), method)

    def _count(self, seconds: float) -> int:
        return max(5, min(self.most, int(self.budget / seconds)))

    def _captured(
        self, run: Callable[[Any], Any], make_state: Callable[[int], Any], state: Any, once: float, touched: float
    ) -> tuple[torch.cuda.CUDAGraph, int, Any] | None:
        """The graph, how many calls it holds and what they hold; None, on every rank, where one cannot capture."""
        l2 = torch.cuda.get_device_properties(0).L2_cache_size
        states = [state, *(make_state(seed) for seed in range(1, rotations(touched, l2) if self.cold else 1))]
        calls = states * max(1, min(MOST_CALLS, int(GRAPH_ROW / once)) // len(states))
        graph, kept, trouble = torch.cuda.CUDAGraph(), None, 0.0
        warm_up(run, states)
        torch.cuda.synchronize()
        try:
            with capture(graph):
                kept = [run(one) for one in calls]
        except torch.OutOfMemoryError:
            raise
        except RuntimeError:
            trouble = 1.0
        if slowest([trouble])[0]:
            return None
        graph.replay()
        return graph, len(calls), kept


@dataclass(frozen=True)
class RankRunClock:
    """A `Clock` for whole runs on ranks, by the wall: one to warm up, then until `budget` seconds or `most` samples."""

    budget: float = 2.0
    most: int = 5

    def time(
        self, run: Callable[[Any], Any], make_state: Callable[[int], Any], device: str, *, touched: float
    ) -> Timing:
        """As `Clock.time`; every rank must call it."""
        call = Keeping(run, make_state(0))
        samples = [_walled(call, device)]
        first = samples.pop()
        while len(samples) < self.most and (not samples or (first < self.budget and sum(samples) < self.budget)):
            samples.append(_walled(call, device))
        return Timing(tuple(samples), WALL, call.out)


def slowest(samples: Sequence[float]) -> tuple[float, ...]:
    """The largest of each sample over the ranks; every rank must call it with as many."""
    worst = torch.tensor(samples, dtype=torch.float64, device=own_device())
    dist.all_reduce(worst, dist.ReduceOp.MAX)
    return tuple(worst.tolist())


def _walled(call: Callable[[], Any], device: str) -> float:
    dist.barrier()
    return slowest([wall(call, device)])[0]


def _walled_rows(call: Callable[[], Any], count: int) -> list[float]:
    """This rank's seconds of each of `count` calls by the wall, all ranks starting each together."""
    taken = []
    for _ in range(count):
        dist.barrier()
        taken.append(wall(call, "cpu"))
    return taken


def _event_rows(call: Callable[[], Any], count: int, ahead: Callable[[], Any] | None = None) -> list[float]:
    """This rank's seconds of each of `count` calls on the device, all ranks starting each together.

    ahead   work that goes before the common start; without it the call itself goes behind it once more, untimed
    """
    align = torch.zeros(1, device=own_device())

    def start_together() -> None:
        if ahead is not None:
            ahead()
        dist.all_reduce(align)
        if ahead is None:
            call()

    return event_seconds(call, count, start_together)
