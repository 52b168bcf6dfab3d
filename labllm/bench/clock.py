"""Clocks: how a rung is timed. Which one fits is a property of the ladder, not of the rung.

KernelClock, for kernels of microseconds to milliseconds. On CUDA: warm-up, the median of many, cold L2. Under a
millisecond a launch shows, so the kernel goes into a CUDA graph over rotated buffers; above, events time it as it is
launched. On a CPU: a monotonic clock. RunClock, for whole runs of seconds (an engine over a trace): a few repetitions,
synchronised.

Invariant: rungs are told apart by their code and not by how they are timed. What a graph cannot capture is marked
'with launch'.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from labllm.bench.capture import capture

LAUNCH_SHOWS = 1e-3  # seconds under which a launch is a part of a time that one sees
LONG = 4  # budgets from which on a first run is a sample
GRAPHED, LAUNCHED, WALL = "cuda graph, rotated buffers", "cuda events, cold L2", "monotonic clock"


@dataclass(frozen=True)
class Timing:
    """Samples of one rung in seconds, how they were taken, and the last timed run's answer where it is kept."""

    samples: tuple[float, ...]
    method: str
    out: Any = None


class Clock(Protocol):
    """Times `run(state)` on `device`; `make_state(seed)` gives further states where cold buffers are wanted."""

    def time(
        self, run: Callable[[Any], Any], make_state: Callable[[int], Any], device: str, *, touched: float
    ) -> Timing:
        """Measure. `touched`: bytes that a call reads and writes."""


def _synchronize(device: str) -> None:
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize()


def wall(call: Callable[[], Any], device: str) -> float:
    """Seconds of one call by the monotonic clock, device work included."""
    _synchronize(device)
    start = time.perf_counter()
    call()
    _synchronize(device)
    return time.perf_counter() - start


def _wall_samples(call: Callable[[], Any], device: str, budget: float, most: int) -> tuple[float, ...]:
    samples = [wall(call, device)]
    while len(samples) < most and (len(samples) < 3 or sum(samples) < budget):
        samples.append(wall(call, device))
    return tuple(samples)


@dataclass(frozen=True)
class KernelClock:
    """Times short work; `budget` is the seconds to spend on one rung, `most` the most samples."""

    budget: float = 0.2
    most: int = 100

    def time(
        self, run: Callable[[Any], Any], make_state: Callable[[int], Any], device: str, *, touched: float
    ) -> Timing:
        state = make_state(0)
        run(state)
        if torch.device(device).type != "cuda":
            return Timing(_wall_samples(lambda: run(state), device, self.budget, self.most), WALL)
        once = min(event_seconds(lambda: run(state), 3, before=_flush(passes=8)))
        if once < LAUNCH_SHOWS:
            try:
                return self._graphed(run, make_state, once, touched)
            except torch.OutOfMemoryError:
                raise
            except RuntimeError:
                return self._launched(run, state, once, LAUNCHED + ", with launch")
        return self._launched(run, state, once, LAUNCHED)

    def _launched(self, run: Callable[[Any], Any], state: Any, once: float, method: str) -> Timing:
        count = max(5, min(self.most, int(self.budget / max(once, 1e-6))))
        return Timing(tuple(event_seconds(lambda: run(state), count, before=_flush(passes=2))), method)

    def _graphed(
        self, run: Callable[[Any], Any], make_state: Callable[[int], Any], once: float, touched: float
    ) -> Timing:
        l2 = torch.cuda.get_device_properties(0).L2_cache_size
        states = [make_state(seed) for seed in range(rotations(touched, l2))]
        warm_up(run, states)
        graph = torch.cuda.CUDAGraph()
        calls = states * max(1, min(20, int(LAUNCH_SHOWS / once)) // len(states))
        with capture(graph):
            kept = [run(state) for state in calls]
        replay = graph.replay
        replay()
        count = max(5, min(self.most, int(self.budget / min(event_seconds(replay, 3)))))
        samples = tuple(t / len(calls) for t in event_seconds(replay, count))
        del kept
        graph.reset()
        return Timing(samples, GRAPHED)


@dataclass(frozen=True)
class RunClock:
    """Times whole runs by the wall: one warm-up, then repetitions until `budget` seconds or `most` samples.

    A run of several budgets is its own sample: the check has run it before, and what a first run pays is little of it.
    The last run's answer is kept: what a run says of itself (latencies, say) belongs to the run that was timed.
    """

    budget: float = 2.0
    most: int = 5

    def time(
        self, run: Callable[[Any], Any], make_state: Callable[[int], Any], device: str, *, touched: float
    ) -> Timing:
        call = Keeping(run, make_state(0))
        first = wall(call, device)
        if first > LONG * self.budget:
            return Timing((first,), WALL, call.out)
        samples = (wall(call, device),) if first > self.budget else _wall_samples(call, device, self.budget, self.most)
        return Timing(samples, WALL, call.out)


class Keeping:
    """`run(state)` as a call without arguments; `out` is the last one's answer."""

    def __init__(self, run: Callable[[Any], Any], state: Any) -> None:
        self.run, self.state, self.out = run, state, None

    def __call__(self) -> None:
        self.out = self.run(self.state)


def rotations(touched: float, l2: int) -> int:
    """How many buffer sets make every call meet a cold L2: enough to touch three times its size, at most 64."""
    return max(1, min(64, -(-3 * l2 // max(1, int(touched)))))


def warm_up(run: Callable[[Any], Any], states: Sequence[Any]) -> None:
    """Run on up to three states beside the stream that will be captured, as torch wants it before a capture."""
    side, main = torch.cuda.Stream(), torch.cuda.current_stream()
    side.wait_stream(main)
    with torch.cuda.stream(side):
        for state in states[:3]:
            run(state)
    main.wait_stream(side)


def busy(size: int, passes: int) -> Callable[[], None]:
    """Work that keeps the GPU busy, so that the launch of what follows is not in its time: `passes` over `size` bytes.

    Where these are more than the L2 cache has, they empty it too.
    """
    buffer = torch.empty(size, dtype=torch.int8, device="cuda")

    def work() -> None:
        for _ in range(passes):
            buffer.zero_()

    return work


def _flush(passes: int) -> Callable[[], None]:
    return busy(2 * torch.cuda.get_device_properties(0).L2_cache_size, passes)


def event_seconds(call: Callable[[], Any], count: int, before: Callable[[], Any] | None = None) -> list[float]:
    """Seconds of each of `count` calls by CUDA events, all queued before the first is read."""
    pairs = []
    for _ in range(count):
        if before is not None:
            before()
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        call()
        end.record()
        pairs.append((start, end))
    torch.cuda.synchronize()
    return [start.elapsed_time(end) / 1e3 for start, end in pairs]
